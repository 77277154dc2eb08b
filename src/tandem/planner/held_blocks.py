"""How many KV blocks requests hold that run at once, in a steady state.

There, they are at different points of their outputs: one holds its prompt, what it has generated so
far, and what its last block has room for. An engine admits by what requests hold now, and keeps a
reserve for those that may still begin a block. So as many run as leave that reserve free, room for
the prompt that is read next, and for the times at which more of them than usual are near their
ends: else some would be preempted, and computed again.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from tandem.memory.growth_reserve import growth_reserve
from tandem.planner.question import Lengths, Question
from tandem.spec.workload import RequestShape

_MARGIN = 1.0
"""Standard deviations of what all hold together, were they independent: with so much to spare
simulated engines preempted next to nobody, where they were not filled up all at once.
"""


class Wants(NamedTuple):
    """Blocks that some requests want which run at once.

    Attributes:
        every: with room for the ends of all. others: of all but one.
        steady: with the prompt that is read next, without a reserve. least: at least so many.
        growing: of the rows, those that may still begin a block, at most.
    """

    rows: int
    every: int
    others: int
    steady: int
    prompt: int
    least: int = 0
    growing: int = 0

    def of(self, pool_blocks: int, *, followed: bool, reading: bool) -> int:
        """Of a pool of so many, as `HeldBlocks.wanted`."""
        rows, every, others, steady, prompt, least, growing = self
        if rows <= 1:
            return every
        # tens of thousands are asked for: without a call for each of the larger and the smaller
        reserve = growth_reserve(growing, pool_blocks) if growing else 0
        steady += reserve
        if steady < least:
            steady = least
        if followed:
            with_next = (every if reading else others) + prompt + reserve
            if with_next > every:
                every = with_next
        return steady if steady < every else every


@dataclass(frozen=True, slots=True)
class HeldBlocks:
    """Of requests of some lengths.

    Attributes:
        mean: of one that runs, over its time. deviation: of that, over requests and time.
        prompt: of one that has read its prompt.
        last: of one of mean length when it ends, and no less than the mean, which long requests
            raise, since they run longer.
        grows: whether any begins a block after those of its prompt: else none is kept free.
    """

    mean: float
    deviation: float
    prompt: int
    last: float
    grows: bool = True

    @staticmethod
    def of(lengths: Lengths, block_size: int) -> "HeldBlocks":
        """By a workload's means.

        Args:
            block_size: tokens.
        """
        if _blocks(lengths.longest_tokens, block_size) == 1:
            return HeldBlocks(1.0, 0.0, prompt=1, last=1.0, grows=False)
        # a block that has been begun is held whole
        mean = (lengths.context_tokens + (block_size + 1) / 2) / block_size
        mean = min(mean, _blocks(lengths.longest_tokens, block_size))
        return HeldBlocks(
            mean=mean,
            deviation=lengths.context_deviation / block_size,
            prompt=math.ceil(lengths.prompt_tokens / block_size),
            last=max(_blocks(round(lengths.total_tokens), block_size), mean),
            grows=any_grows(lengths.shapes or (lengths.usual,), block_size),
        )

    def passing(self, prompts: int) -> int:
        """On the accelerator, of so many prompts whose requests go to the host."""
        return prompts * self.prompt

    def wanted(
        self, rows: int, pool_blocks: int, *, followed: bool = True, reading: bool = False
    ) -> int:
        """Blocks of a pool that so many requests want that run at once there.

        Few, or such as hardly grow, want less if each has room for its end, and the next one finds
        the reserve free while all others are at theirs.

        Args:
            followed: others begin where these end. reading: before that, so that it reads its
                prompt while all of these decode.
        """
        return self.wants(rows).of(pool_blocks, followed=followed, reading=reading)

    def wants(self, rows: int) -> "Wants":
        """What so many requests want of a pool, as far as its size does not matter."""
        every = math.ceil(rows * self.last)
        if rows <= 1:
            return Wants(rows, every, every, every, 0)
        spread = _MARGIN * self.deviation * math.sqrt(rows)
        steady = math.ceil(rows * self.mean + spread) + self.prompt
        others = math.ceil((rows - 1) * self.last)
        growing = rows if self.grows else 0
        return Wants(rows, every, others, steady, self.prompt, math.ceil(self.last), growing)


def may_run_more(question: Question, held: HeldBlocks) -> bool:
    """Whether plans let more run on the accelerator than they count (`while_young`): how many do is
    then decided by what they hold, of which memory has room for the mean, without a deviation.
    """
    bounded = question.tpot_bound_s is not None or question.objective == "latency"
    return held.grows and question.lengths.prompts_are_rows and not bounded


def least_mean(lengths: Lengths, block_size: int) -> float:
    """Blocks that a request holds in the mean of the sweeps that decode its tokens, at least.

    A block that has been begun is held whole, so that it is half a block more than its tokens, but
    for those that the first and the last token begin. Where `r` tokens of the last one are in use,
    that mean leaves out `r (size - r) / (2 size)`, summed over sweeps; of the first it counts as
    many too much, an eighth of its size at most.
    """
    tokens = lengths.context_tokens
    usual = (tokens + (block_size - 1) / 2) / block_size
    return max(tokens / block_size, usual - block_size / 8 / max(1.0, lengths.later_tokens))


def any_grows(shapes: Iterable[RequestShape], block_size: int) -> bool:
    """Whether any of these requests begins a block after those of its prompt, as engines tell."""
    return any(
        _blocks(shape.prompt_tokens + shape.generated_tokens, block_size)
        > -(-shape.prompt_tokens // block_size)
        for shape in shapes
    )


def _blocks(tokens: int, block_size: int) -> int:
    """Of a request of so many tokens when it ends; the last one needs no KV."""
    return -(-max(1, tokens - 1) // block_size)

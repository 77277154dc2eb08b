"""What a block achieves, from the times of its passes."""

import math
from dataclasses import dataclass

from tandem.planner.fluid.virtual_time import SweepTime
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.times import BlockTime
from tandem.planner.question import Lengths, Question
from tandem.planner.rates import Resource


@dataclass(frozen=True, slots=True)
class BlockRates:
    """A job in blocks, one after the other.

    Attributes:
        tokens_per_s: output tokens of all requests, over the whole job: what plans are ranked by.
        block_s: of one block, prompts included. prefill_s: until its first tokens.
        pass_s: per token of all its sequences, at mean context.
        blocks: of the job, the last of which may be smaller; it is taken to last as long.
        tail_s: beside the blocks: of passes for sequences that are longer than the mean, and what
            fewer sequences than a block has take beyond their share.
    """

    tokens_per_s: float
    block_s: float
    prefill_s: float
    pass_s: float
    blocks: int
    tail_s: float = 0.0

    @property
    def job_s(self) -> float:
        """All requests."""
        return self.blocks * self.block_s + self.tail_s


@dataclass(frozen=True, slots=True)
class Phase:
    """Prompts, or the passes after them.

    Attributes:
        share: of a block's time. busy: shares of the phase's.
    """

    share: float
    busy: tuple[tuple[Resource, float], ...]

    @property
    def bottleneck(self) -> tuple[Resource, float]:
        """The busiest resource and its share."""
        return max(self.busy, key=lambda entry: entry[1])


@dataclass(frozen=True, slots=True)
class BlockPrediction:
    """Rates in virtual time, and how busy the resources are.

    Attributes:
        bound_tokens_per_s: what no schedule of this candidate exceeds.
    """

    rates: BlockRates
    time: BlockTime
    bound_tokens_per_s: float
    prompts: Phase
    tokens: Phase

    @property
    def longer(self) -> Phase:
        """What a block spends more time on."""
        return self.prompts if self.prompts.share > self.tokens.share else self.tokens


def block_rates(
    lengths: Lengths,
    candidate: BlockCandidate,
    prefill_s: float,
    pass_s: float,
    tail_s: float = 0.0,
) -> BlockRates:
    """The prompts' pass gives the first token of each sequence."""
    blocks = math.ceil(lengths.requests / candidate.block_rows)
    block_s = prefill_s + max(0.0, lengths.generated_tokens - 1) * pass_s
    rate = job_tokens_per_s(lengths, candidate, block_s, tail_s)
    return BlockRates(rate, block_s, prefill_s, pass_s, blocks, tail_s)


def job_tokens_per_s(
    lengths: Lengths, candidate: BlockCandidate, block_s: float, tail_s: float = 0.0
) -> float:
    """Of the whole job, if each of its blocks takes so long."""
    blocks = math.ceil(lengths.requests / candidate.block_rows)
    return lengths.requests * lengths.generated_tokens / (blocks * block_s + tail_s)


def phases(question: Question, time: BlockTime, rates: BlockRates) -> tuple[Phase, Phase]:
    """Of a block: prompts, and the passes after them."""
    share = rates.prefill_s / rates.block_s
    prompts = Phase(share, _busy(question, time.prefill))
    return prompts, Phase(1 - share, _busy(question, time.decode))


def _busy(question: Question, time: SweepTime) -> tuple[tuple[Resource, float], ...]:
    found: tuple[tuple[Resource, float], ...] = (
        ("accelerator", time.accelerator_s / time.period_s),
        ("host processor", time.cpu_s / time.period_s),
        ("link to the accelerator", time.h2d_s / time.period_s),
        ("link to the host", time.d2h_s / time.period_s),
        ("host memory", time.dram_bytes / time.period_s / question.hardware.host.pool_bytes_per_s),
    )
    if time.disk_s:
        return (*found, ("disk", time.disk_s / time.period_s))
    return found

"""How many KV blocks a job's sequences hold at once: by what they need, pass by pass."""

import math
from collections import Counter
from typing import NamedTuple

from tandem.planner.question import Lengths

_MARGIN = 2.0
"""Standard deviations: sequences that run together may be longer than those of the whole job."""

_OUT_OF_STEP = 1.04
"""Sequences that follow others are not in step with those that still run: so much is enough that
none of them is left over, where 1 left some to a block of their own."""


class _Need(NamedTuple):
    """Blocks of a sequence, in the mean, when they are most; how much sequences differ then; and
    what the largest comes to.
    """

    mean: float
    deviation: float
    largest: int


class _Change(NamedTuple):
    """What a pass adds to the blocks of all sequences, and to their squares."""

    blocks: int
    squares: int


class SequenceRoom:
    """Of one job.

    Sequences that begin together are largest together shortly before the first of them end, and
    less than the sum of what each comes to, if they differ. Later, when places have been filled
    again, they are of all ages.
    """

    def __init__(self, lengths: Lengths, block_size: int) -> None:
        self._size = block_size
        self._requests = lengths.requests
        self._shapes = Counter(
            (shape.prompt_tokens, shape.generated_tokens) for shape in lengths.shapes
        )
        if not self._shapes:  # means alone are known
            mean = max(1, round(lengths.prompt_tokens)), max(1, round(lengths.generated_tokens))
            self._shapes[mean] = lengths.requests
        # the last token of a request needs no KV
        self.longest_blocks: int = -(-max(1, lengths.longest_tokens - 1) // block_size)
        self._needs: dict[int, _Need] = {}
        self._made: dict[int, float] = {}
        self._in_passes: dict[int, float] = {}

    def blocks(self, sequences: int, recomputed_tokens: int = 0, *, together: bool = False) -> int:
        """Of so many sequences that run at once; enough for the longest one.

        Args:
            recomputed_tokens: of each, within its prompt, which take no blocks.
            together: all requests run at once, these among them, so that they take no more than
                all, less what the others take at least.
        """
        if not sequences:
            return 0
        if recomputed_tokens not in self._needs:
            self._needs[recomputed_tokens] = self._need(recomputed_tokens)
        need = self._needs[recomputed_tokens]
        others = max(0.0, 1 - sequences / self._requests)
        spread = need.deviation * math.sqrt(sequences * others)
        mean = need.mean * (_OUT_OF_STEP if sequences < self._requests else 1.0)
        wanted = sequences * mean + _MARGIN * spread
        if together and sequences < self._requests:
            left = (self._requests - sequences) * need.mean / _OUT_OF_STEP - _MARGIN * spread
            wanted = min(wanted, self._requests * need.mean - max(0.0, left))
        return max(self.longest_blocks, min(math.ceil(wanted - 1e-9), sequences * need.largest))

    def made_tokens(self, recomputed_tokens: int) -> float:
        """Of a sequence, in the mean, that are recomputed where so many are at most: whole blocks
        within its prompt.
        """
        if recomputed_tokens not in self._made:
            made = sum(
                count * (min(recomputed_tokens, prompt) // self._size)
                for (prompt, _), count in self._shapes.items()
            )
            self._made[recomputed_tokens] = made * self._size / self._shapes.total()
        return self._made[recomputed_tokens]

    def blocks_in_passes(self, recomputed_tokens: int) -> float:
        """Of a sequence, in the mean over all passes, but for those that are recomputed: the last
        one is full in part only.
        """
        if recomputed_tokens not in self._in_passes:
            blocks = passes = 0
            for (prompt, generated), count in self._shapes.items():
                made = min(recomputed_tokens, prompt) // self._size
                begun = self._blocks_up_to(prompt + generated - 2) - self._blocks_up_to(prompt - 1)
                blocks += count * (begun - (generated - 1) * made)
                passes += count * (generated - 1)
            self._in_passes[recomputed_tokens] = blocks / max(1, passes)
        return self._in_passes[recomputed_tokens]

    def _blocks_up_to(self, last: int) -> int:
        """Of contexts that end with each token up to this one, from the first, in sum."""
        whole, rest = divmod(last + 1, self._size)
        return self._size * whole * (whole + 1) // 2 + rest * (whole + 1)

    def _need(self, recomputed_tokens: int) -> _Need:
        """At the fullest pass of sequences that begin together, or of all ages."""
        changes = dict[int, _Change]()

        def change(at: int, blocks: int, squares: int) -> None:
            before = changes.get(at, _Change(0, 0))
            changes[at] = _Change(before.blocks + blocks, before.squares + squares)

        tokens = largest = 0
        for (prompt, generated), count in self._shapes.items():
            tokens += count * generated
            made = min(recomputed_tokens, prompt) // self._size
            held = (prompt - 1) // self._size + 1 - made
            change(0, count * held, count * held**2)
            for at in range(self._size - (prompt - 1) % self._size, generated, self._size):
                change(at, count, count * (2 * held + 1))
                held += 1
            change(generated, -count * held, -count * held**2)
            largest = max(largest, held)
        return self._fullest(changes, tokens, largest)

    def _fullest(self, changes: dict[int, _Change], tokens: int, largest: int) -> _Need:
        number = self._shapes.total()
        most = _Need(0.0, 0.0, largest)
        blocks = squares = last = area = 0
        for at in sorted(changes):
            area += blocks * (at - last)
            last = at
            blocks += changes[at].blocks
            squares += changes[at].squares
            mean = blocks / number
            if mean > most.mean:
                deviation = math.sqrt(max(0.0, squares / number - mean**2))
                most = _Need(mean, deviation, largest)
        refilled = self._requests > 1 and area / tokens > most.mean
        return most._replace(mean=area / tokens) if refilled else most

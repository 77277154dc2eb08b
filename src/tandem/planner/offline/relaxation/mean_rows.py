"""Bounds of a block whose batches have, in the mean, a number of sequences that is not whole, and
whose prompts are read by programs of which there may be fewer than blocks.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from tandem.planner.offline.bound import BlockBound, Busy
from tandem.planner.offline.candidate import BlockCandidate


class PromptPrograms(NamedTuple):
    """Which read the prompts of a block.

    Attributes:
        number: of a block, in the mean. rows: prompts of a batch in each of them, in the mean.
    """

    number: float
    rows: float


class MeanRows:
    """Some batches have one sequence more than others. What a batch asks of a resource is convex in
    its sequences, so that no other numbers with the same mean ask for less.

    Args:
        more: share of the batches with one more than candidates say.
        programs: over prompts; one over those of the block, if they are not given.
    """

    def __init__(
        self, bound: BlockBound, more: float = 0.0, programs: PromptPrograms | None = None
    ) -> None:
        self._bound, self._more, self._programs = bound, more, programs

    def decode_busy(self, candidate: BlockCandidate) -> Busy:
        """As of `BlockBound`, and so are the others."""
        return _between(self._bound.decode_busy, candidate, self._more)

    def prefill_busy(self, candidate: BlockCandidate) -> Busy:
        """Of the programs over all prompts."""
        if self._programs is None:
            return _between(self._bound.prefill_busy, candidate, self._more)
        number, rows = self._programs
        whole = max(1, int(rows))
        read = _with_rows(candidate, whole)
        busy = _between(self._bound.prefill_busy, read, max(0.0, rows - whole))
        return _combined(lambda each, _: number * each, busy, busy)

    def decode_s(self, candidate: BlockCandidate) -> float:
        """Of a pass of the fewer sequences."""
        return self._bound.decode_s(candidate)

    def prefill_s(self, candidate: BlockCandidate) -> float:
        """Likewise, of the programs over prompts."""
        if self._programs is None:
            return self._bound.prefill_s(candidate)
        number, rows = self._programs
        return number * self._bound.prefill_s(_with_rows(candidate, max(1, int(rows))))

    def lent_s(self, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a layer, or its MLP: of the CPU for all batches, and of the link."""
        computed_s, brought_s = self._bound.lent_s(candidate)
        more_s, _ = self._bound.lent_s(_with_rows(candidate, candidate.rows + 1))
        return computed_s + self._more * (more_s - computed_s), brought_s


def _between(
    busy_of: Callable[[BlockCandidate], Busy], candidate: BlockCandidate, more: float
) -> Busy:
    """With one sequence more in that share of the batches."""
    busy = busy_of(candidate)
    if not more:
        return busy
    other = busy_of(_with_rows(candidate, candidate.rows + 1))
    return _combined(lambda one, another: one + more * (another - one), busy, other)


def _combined(made: Callable[[float, float], float], busy: Busy, other: Busy) -> Busy:
    """Of each resource."""
    return Busy(
        tuple(map(made, busy.by_queue, other.by_queue)),
        made(busy.link_s, other.link_s),
        made(busy.dram_bytes, other.dram_bytes),
        made(busy.chain_s, other.chain_s),
        made(busy.way_s, other.way_s),
    )


def _with_rows(kind: BlockCandidate, rows: int) -> BlockCandidate:
    """So many, all with their KV where those of the kind have it."""
    if kind.resident_rows:
        return replace(kind, resident_rows=rows)
    if kind.streamed_rows:
        return replace(kind, streamed_rows=rows)
    return replace(kind, cpu_rows=rows)

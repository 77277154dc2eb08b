"""Bounds of a block whose batches have, in the mean, a number of sequences that is not whole."""

from dataclasses import replace

from tandem.planner.offline.bound import BlockBound, Busy
from tandem.planner.offline.candidate import BlockCandidate


class MeanRows:
    """Some batches have one sequence more than others. What a batch asks of a resource is convex in
    its sequences, so that no other numbers with the same mean ask for less.

    Args:
        more: share of the batches with one more than candidates say.
    """

    def __init__(self, bound: BlockBound, more: float = 0.0) -> None:
        self._bound, self._more = bound, more

    def decode_busy(self, candidate: BlockCandidate) -> Busy:
        """As of `BlockBound`, and so are the others."""
        busy = self._bound.decode_busy(candidate)
        return (
            self._mixed(busy, self._bound.decode_busy(_with_one(candidate))) if self._more else busy
        )

    def prefill_busy(self, candidate: BlockCandidate) -> Busy:
        """Of the pass over all prompts."""
        busy = self._bound.prefill_busy(candidate)
        return (
            self._mixed(busy, self._bound.prefill_busy(_with_one(candidate)))
            if self._more
            else busy
        )

    def decode_s(self, candidate: BlockCandidate) -> float:
        """Of a pass of the fewer sequences."""
        return self._bound.decode_s(candidate)

    def prefill_s(self, candidate: BlockCandidate) -> float:
        """Likewise, over all prompts."""
        return self._bound.prefill_s(candidate)

    def lent_s(self, candidate: BlockCandidate) -> tuple[float, float]:
        """Of a layer, or its MLP: of the CPU for all batches, and of the link."""
        computed_s, brought_s = self._bound.lent_s(candidate)
        more_s, _ = self._bound.lent_s(_with_one(candidate))
        return self._between(computed_s, more_s), brought_s

    def _between(self, one: float, another: float) -> float:
        return one + self._more * (another - one)

    def _mixed(self, busy: Busy, more: Busy) -> Busy:
        queues = zip(busy.by_queue, more.by_queue, strict=True)
        return Busy(
            tuple(self._between(one, another) for one, another in queues),
            self._between(busy.link_s, more.link_s),
            self._between(busy.dram_bytes, more.dram_bytes),
            self._between(busy.chain_s, more.chain_s),
            self._between(busy.way_s, more.way_s),
        )


def _with_one(kind: BlockCandidate) -> BlockCandidate:
    """More, where all the others' KV is."""
    if kind.resident_rows:
        return replace(kind, resident_rows=kind.resident_rows + 1)
    if kind.streamed_rows:
        return replace(kind, streamed_rows=kind.streamed_rows + 1)
    return replace(kind, cpu_rows=kind.cpu_rows + 1)

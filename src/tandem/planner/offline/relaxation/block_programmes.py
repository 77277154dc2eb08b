"""All programmes of one number of sequences: every number of batches, all types, every way."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.relaxation.kv_kinds import KvKinds, kv_kinds, none_recomputed
from tandem.planner.offline.relaxation.mean_rows import MeanRows
from tandem.planner.offline.relaxation.shares import BlockShares, least_shares
from tandem.planner.offline.relaxation.way import BlockWay, block_ways
from tandem.planner.offline.times import BlockTimes
from tandem.planner.relaxation.programme import Solver


@dataclass(frozen=True, slots=True)
class RelaxedBlock:
    """A block's shares, and what was given.

    Attributes:
        block: its batches and types, all KV on the accelerator.
    """

    block: BlockCandidate
    way: BlockWay
    shares: BlockShares


class BlockProgrammes:
    """Of one question."""

    def __init__(self, times: BlockTimes) -> None:
        self._times, self._solver = times, Solver()
        self._layers = times.question.model.num_layers

    @property
    def solved(self) -> int:
        """How many there were."""
        return self._solver.programmes

    def least(self, low: int, high: int, places: int) -> RelaxedBlock | None:
        """The least time of a block of so many sequences in a pass.

        Args:
            low, high: of them; time is that of `low`, batches are at most `high`.
            places: that memory must have.
        """
        return min(self._all(low, high, places), key=lambda e: e.shares.block_s, default=None)

    def of_block(self, block: BlockCandidate) -> Iterator[RelaxedBlock]:
        """One after the other, each way to run a block of as many sequences and batches."""
        rows = block.rows
        bare = BlockCandidate(
            block.batches, 0, rows, 0, 0, quantized=block.quantized, host_kv=block.host_kv
        )
        yield from self._every_way(bare, bare)

    def _all(self, low: int, high: int, places: int) -> Iterator[RelaxedBlock]:
        precisions = self._times.precisions
        for batches, bits, host_kv in product(
            [count for count in BATCHES if count <= high],
            precisions.layer_choices,
            precisions.host_kv_choices,
        ):
            rows = max(1, low // batches)
            block = BlockCandidate(batches, 0, rows, 0, 0, 0, bits, host_kv)
            room = replace(block, resident_rows=max(1, places // batches))
            yield from self._every_way(block, room, max(0.0, low / batches - rows))

    def _every_way(
        self, block: BlockCandidate, room: BlockCandidate, more: float = 0.0
    ) -> Iterator[RelaxedBlock]:
        """Of one block, for which memory must have as much room as another takes.

        Args:
            more: share of its batches that have a sequence more.
        """
        times, bound = self._times, MeanRows(self._times.bound, more)
        kinds, held = kv_kinds(times, block), kv_kinds(times, room)
        may_lend = self._layers > STREAM_SLOTS and not times.question.model.dense_layers
        for way in block_ways(block.quantized, lacks=self._lacks(held), lends=may_lend):
            if way.streams and self._layers <= stream_slots(self._layers):
                continue
            some, room_for = kinds, held
            if way.lends != "none" and not way.mlps:
                some, room_for = none_recomputed(kinds), none_recomputed(held)
            shares = least_shares(times, self._solver, bound, some, room_for, way)
            if shares is not None:
                yield RelaxedBlock(block, way, shares)

    def _lacks(self, held: KvKinds) -> bool:
        """Whether layers may be read from disk, and host memory may be too small without."""
        question, footprint = self._times.question, self._times.footprint
        away = (replace(kind, streamed=self._layers) for kind in held)
        return footprint.reads and any(
            footprint.host(kind, prompts_on_host=False).total > question.host_bytes for kind in away
        )

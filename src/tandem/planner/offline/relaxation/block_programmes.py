"""The programmes of blocks: every number of batches, all types, every way."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from tandem.cost.unlike_rows import UnlikeRows
from tandem.plan.offline import QuantizedLayers
from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.bound import BlockBound
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.candidates import BATCHES
from tandem.planner.offline.precisions import KVTypes
from tandem.planner.offline.relaxation.kv_kinds import KvKinds, kv_kinds, none_recomputed
from tandem.planner.offline.relaxation.mean_prices import MeanPrices, MeanRows
from tandem.planner.offline.relaxation.shares import BlockShares, least_shares
from tandem.planner.offline.relaxation.way import BlockWay, block_ways
from tandem.planner.offline.relaxation.whole_layers import WholeLayers
from tandem.planner.offline.times import BlockTimes
from tandem.planner.relaxation.solver import Solver


@dataclass(frozen=True, slots=True)
class RelaxedBlock:
    """A block's shares, and what was given.

    Attributes:
        block: its batches and types, all KV on the accelerator.
    """

    block: BlockCandidate
    way: BlockWay
    shares: BlockShares


class BlockKind(NamedTuple):
    """All that is given of a block but its sequences."""

    batches: int
    quantized: QuantizedLayers
    kv: KVTypes
    way: BlockWay


class Sequences(NamedTuple):
    """Of a block, in all its batches.

    Attributes:
        rows: in a pass, in the mean. places: that memory must have. most: in any pass.
        programs: over its prompts, in the mean. read: prompts of one, in the mean.
    """

    rows: float
    places: int
    most: int
    programs: float
    read: float


class BlockProgrammes:
    """Of one question."""

    def __init__(self, times: BlockTimes) -> None:
        self._times, self._solver = times, Solver()
        self._layers = times.question.model.num_layers
        self._bounds: dict[MeanRows, BlockBound] = {}

    @property
    def solved(self) -> int:
        """How many there were."""
        return self._solver.programmes

    def kinds(self) -> Iterator[BlockKind]:
        """All kinds of blocks, whatever the sizes of memories."""
        precisions, reads = self._times.precisions, self._times.footprint.reads
        for batches, bits, kv in product(BATCHES, precisions.layer_choices, precisions.kv_choices):
            for way in self._ways(bits, reads=reads):
                yield BlockKind(batches, bits, kv, way)

    def least(
        self, kind: BlockKind, sequences: Sequences, within: WholeLayers | None = None
    ) -> RelaxedBlock | None:
        """The least time of a block of a kind.

        Args:
            within: numbers of layers; None: any share.
        """
        batches = kind.batches
        times, rows = self._times, _mean_rows(sequences, batches)
        each = rows.passes.at_once
        block = BlockCandidate(
            batches, 0, each, 0, 0, 0, kind.quantized, kind.kv.host, device_kv=kind.kv.device
        )
        room = replace(block, resident_rows=max(1, sequences.places // batches))
        if rows not in self._bounds:
            prices = MeanPrices(times.prices, rows)
            self._bounds[rows] = BlockBound(times.question, prices, times.work)
        kinds, held = kv_kinds(times, block), kv_kinds(times, room)
        return self._least(block, kind.way, self._bounds[rows], kinds, held, within)

    def of_block(self, block: BlockCandidate) -> Iterator[RelaxedBlock]:
        """One after the other, each way to run a block of as many sequences and batches."""
        bare = block.shared(block.rows, 0).undivided()
        bare = replace(bare, streamed=0, on_disk=0, mlps=False, lent=0)
        bound, kinds = self._times.bound, kv_kinds(self._times, bare)
        for way in self._ways(block.quantized, reads=self._lacks(kinds)):
            found = self._least(bare, way, bound, kinds, kinds)
            if found is not None:
                yield found

    def _ways(self, bits: QuantizedLayers, *, reads: bool) -> Iterator[BlockWay]:
        model, many = self._times.question.model, self._layers > STREAM_SLOTS
        lends, divides = many and not model.dense_layers, many and model.experts is None
        for way in block_ways(bits, reads=reads, lends=lends, divides=divides):
            if not way.streams or self._layers > stream_slots(self._layers):
                yield way

    def _least(
        self,
        block: BlockCandidate,
        way: BlockWay,
        bound: BlockBound,
        kinds: KvKinds,
        held: KvKinds,
        within: WholeLayers | None = None,
    ) -> RelaxedBlock | None:
        if (way.lends_layers and not way.mlps) or way.lends == "maps":
            kinds, held = none_recomputed(kinds), none_recomputed(held)
        shares = least_shares(self._times, self._solver, bound, kinds, held, way, within)
        return None if shares is None else RelaxedBlock(block, way, shares)

    def _lacks(self, held: KvKinds) -> bool:
        """Whether layers may be read from disk, and host memory may be too small without."""
        question, footprint = self._times.question, self._times.footprint
        away = (replace(kind, streamed=self._layers) for kind in held)
        return footprint.reads and any(
            footprint.host(kind, prompts_on_host=False).total > question.host_bytes for kind in away
        )


def _mean_rows(sequences: Sequences, batches: int) -> MeanRows:
    """Batches share them, since any may be empty; but where no place ever is, each has its own."""
    mean, _, most, programs, read = sequences
    each = -(-most // batches)
    fewest = most - (batches - 1) * each
    if mean < most or fewest < 1:
        return MeanRows(UnlikeRows(max(1.0, mean), 1, most, each), batches, programs, read)
    passes = UnlikeRows(most / batches, fewest, each, each)
    return MeanRows(passes, 1, programs, read / batches)

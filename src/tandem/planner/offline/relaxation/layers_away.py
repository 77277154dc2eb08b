"""What layers ask for that do not stay on the accelerator, beside those that do."""

from collections.abc import Callable
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.bound import Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.mean_rows import MeanRows
from tandem.planner.offline.relaxation.way import BlockWay
from tandem.planner.offline.times import BlockTimes

Resources = tuple[float, ...]
"""Seconds of each queue, of the link's bytes, and of the host memory's."""
_BusyOf = Callable[[BlockCandidate], Busy]


class LayersAway:
    """Of one way to run a block. Loads, reads and what is lent are asked for by a pass's work."""

    def __init__(self, times: BlockTimes, bound: MeanRows, kinds: KvKinds, way: BlockWay) -> None:
        self.way, self._bound = way, bound
        self._times, self._kinds = times, kinds
        self._layers = times.question.model.num_layers
        self._dram_bytes_per_s = times.question.hardware.host.pool_bytes_per_s
        self._all = [self.all_away(kind) for kind in kinds]

    def all_away(self, kind: BlockCandidate) -> BlockCandidate:
        """With all layers, or their MLPs, streamed."""
        return replace(kind, streamed=self._layers, mlps=self.way.mlps)

    def resources(self, busy: Busy) -> Resources:
        """Of a pass."""
        return (*busy.by_queue, busy.link_s, busy.dram_bytes / self._dram_bytes_per_s)

    def loads(self, busy_of: _BusyOf) -> Resources:
        """Of all layers that come, more than of resident ones."""
        return self._less(busy_of(self._all[0]), busy_of(self._kinds[0]))

    def reads(self, busy_of: _BusyOf) -> Resources:
        """Of all of them that are read from disk before, more than of those that come."""
        every = self._all[0]
        read = replace(every, on_disk=self._layers) if self.way.reads else every
        return self._less(busy_of(read), busy_of(every))

    def lent(self, busy_of: _BusyOf) -> Resources:
        """Of a layer that is lent, more, or less, than of one that comes: of the kinds of KV, the
        least.
        """
        if self.way.lends == "none":
            return (0.0,) * len(self.resources(busy_of(self._kinds[0])))
        more = [self._less(busy_of(replace(e, lent=1)), busy_of(e)) for e in self._all]
        return tuple(min(found) for found in zip(*more, strict=True))

    def lent_way_s(self) -> float:
        """What a batch's way through its layers is longer, or shorter, by a layer that is lent."""
        way_s = self._bound.way_s
        return min(way_s(replace(each, lent=1)) - way_s(each) for each in self._all)

    def waits_s(self) -> tuple[float, float]:
        """Of the link's time in a pass, what a layer takes that comes, and what one that the CPU
        computes while others come adds: its own that it saves, and what the link stands still
        while it is computed.
        """
        bound, away = self._bound, self._all[0]
        computed_s, brought_s = bound.lent_s(away)
        comes_s = bound.layer_s(away) if self.way.reads else brought_s
        return brought_s, max(0.0, computed_s - STREAM_SLOTS * comes_s) - brought_s

    @property
    def kept(self) -> float:
        """Share of the layers that need no loads: as many as there are slots stay there. They take
        less memory than resident ones only if these are not in few bits.
        """
        few = self._kinds[0].quantized == "streamed"
        return stream_slots(self._layers) / self._layers if few else 0.0

    @property
    def stay_beside_one(self) -> int:
        """Of all layers but one that is left to the CPU, those that then stay in their slots."""
        others = self._layers - 1
        return others if others <= stream_slots(others) else 0

    def least_apart(self, held: KvKinds) -> int | None:
        """The fewest MLPs, in whole numbers, without which the accelerator may have room for the
        rest; None: there are not enough, or the host does not hold them. Where some layers are read
        from disk, these are whole, and none may be needed.
        """
        if self.way.reads or not self.way.mlps:
            return 0
        footprint, question = self._times.footprint, self._times.question
        for count in range(self._layers + 1):
            apart = [replace(kind, streamed=count, mlps=True) for kind in held]
            device = min(footprint.device(each, prompts_on_host=True).total for each in apart)
            if device <= question.device_bytes:
                host = min(footprint.host(each, prompts_on_host=False).total for each in apart)
                return count if host <= question.host_bytes else None
        return None

    def _less(self, busy: Busy, other: Busy) -> Resources:
        both = zip(self.resources(busy), self.resources(other), strict=True)
        return tuple(one - another for one, another in both)

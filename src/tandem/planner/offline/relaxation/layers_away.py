"""What layers ask for that do not stay on the accelerator, beside those that do."""

from collections.abc import Callable
from dataclasses import replace

from tandem.plan.weights import STREAM_SLOTS, stream_slots
from tandem.planner.offline.bound import BlockBound, Busy
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.relaxation.kv_kinds import KvKinds
from tandem.planner.offline.relaxation.way import BlockWay
from tandem.planner.offline.times import BlockTimes

Resources = tuple[float, ...]
"""Seconds of each queue, of the link's bytes, and of the host memory's."""
_BusyOf = Callable[[BlockCandidate], Busy]


class LayersAway:
    """Of one way to run a block. Nothing here is below 0."""

    def __init__(self, times: BlockTimes, bound: BlockBound, kinds: KvKinds, way: BlockWay) -> None:
        self.way, self._bound = way, bound
        self._times, self._kinds = times, kinds
        self._layers = times.question.model.num_layers
        self._dram_bytes_per_s = times.question.hardware.host.pool_bytes_per_s

    def all_away(self, kind: BlockCandidate) -> BlockCandidate:
        """With all layers, or their MLPs, streamed."""
        return replace(kind, streamed=self._layers, mlps=self.way.mlps)

    def resources(self, busy: Busy) -> Resources:
        """Of a pass."""
        return (*busy.by_queue, busy.link_s, busy.dram_bytes / self._dram_bytes_per_s)

    def loads(self, busy_of: _BusyOf) -> Resources:
        """Of all layers that come, more than of such as are there."""
        every, stays = self.all_away(self._kinds[0]), self._kinds[0]
        here = self.apart(busy_of, stays) if self._few else self.resources(busy_of(stays))
        return self._more(self.resources(busy_of(every)), here)

    def reads(self, busy_of: _BusyOf) -> Resources:
        """Of all of them that are read from disk before, more than of those that come."""
        every = self.all_away(self._kinds[0])
        read = replace(every, on_disk=self._layers) if self.way.reads else every
        return self._more(self.resources(busy_of(read)), self.resources(busy_of(every)))

    def apart(self, busy_of: _BusyOf, kind: BlockCandidate) -> Resources:
        """Of a pass, if all layers were of those that differ, and none came."""
        some = self._some_apart(kind)
        of_some, of_none = self.resources(busy_of(some)), self.resources(busy_of(kind))
        both = zip(of_none, of_some, strict=True)
        return tuple(self._extended(none, more, some) for none, more in both)

    def apart_way_s(self, kind: BlockCandidate) -> float:
        """Likewise, a batch's way through all layers."""
        some, busy_of = self._some_apart(kind), self._bound.decode_busy
        return self._extended(busy_of(kind).way_s, busy_of(some).way_s, some)

    def one_lent_s(self) -> tuple[float, float]:
        """Of a pass, what the CPU takes to compute a layer, or its MLP, for all batches, and the
        link to bring it.
        """
        return self._bound.lent_s(self.all_away(self._kinds[0]))

    @property
    def differ(self) -> bool:
        """Whether KV costs something else in some layers than in the others: those that the CPU
        computes, or that alone are in few bits.
        """
        return self.way.lends_layers or self._few

    @property
    def kept(self) -> float:
        """Share of the layers that need no loads: as many as there are slots stay there. They take
        less memory than resident ones only if these are not in few bits.
        """
        return stream_slots(self._layers) / self._layers if self._few else 0.0

    @property
    def _few(self) -> bool:
        return self._kinds[0].quantized == "streamed"

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
            device = min(footprint.least_device(each).total for each in apart)
            if device <= question.device_bytes:
                host = min(footprint.host(each, prompts_on_host=False).total for each in apart)
                return count if host <= question.host_bytes else None
        return None

    def _some_apart(self, kind: BlockCandidate) -> BlockCandidate:
        """As many of the layers that differ as there may be while none comes."""
        if self.way.lends == "none":
            return replace(kind, streamed=stream_slots(self._layers))
        return replace(self.all_away(kind), lent=self._layers - STREAM_SLOTS)

    def _extended(self, none: float, some: float, of: BlockCandidate) -> float:
        """To all layers, which are alike but for attention, which the same place does anyway."""
        return max(0.0, none + (some - none) * self._layers / (of.lent or of.streamed))

    def _more(self, some: Resources, others: Resources) -> Resources:
        return tuple(max(0.0, one - another) for one, another in zip(some, others, strict=True))

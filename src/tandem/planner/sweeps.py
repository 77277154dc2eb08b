"""Sweeps of a candidate: their programs, their time, and a bound from below that costs little."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, Queue
from tandem.plan.weights import STREAM_SLOTS, StreamedLayers, streamed_layers
from tandem.planner.candidate import Candidate
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.measured_host import MeasuredHost
from tandem.planner.question import Lengths, Question
from tandem.planner.schedule import Schedule, Schedules, schedule_each
from tandem.planner.virtual_time import PricedSweep, SweepTime, steady_sweep
from tandem.spec.tier import Tier

_WARM_UP_SWEEPS = 1
"""Before the one whose time is taken; later ones differ a little where something is shared."""


class SweepLoad(NamedTuple):
    """What one sweep carries: its main lane, and a cohort that passes through.

    Attributes:
        cohort: rows with KV on the host that advance by one layer.
    """

    main: LaneLoad
    cohort: LaneLoad | None = None

    @property
    def lanes(self) -> list[LaneLoad]:
        """Those of the program: a cohort may go alone, through one layer."""
        if self.cohort is None:
            return [self.main]
        return [self.main, self.cohort] if self.main.tokens else [self.cohort]


def decode_load(
    candidate: Candidate, lengths: Lengths, chunk: int = 0, host_chunk: bool = False
) -> SweepLoad:
    """All rows decode one token; `chunk` tokens of prompts in one tier beside them."""
    device_chunk, host_tokens = (0, chunk) if host_chunk else (chunk, 0)
    context = lengths.context_tokens
    # half of a prompt lies before its mean token; a chunk may be less than one, or several
    offset = (lengths.prompt_tokens - chunk) / 2 if chunk else 0.0
    rides = candidate.host_rows if candidate.strategy == "ride-along" else 0
    if candidate.device_share:
        share = candidate.device_share
        part = TierLoad(rides, context, chunk, offset, share)
        logits = rides + (1 if chunk else 0)
        main = LaneLoad(part, part._replace(share=1 - share), logits, split=part.tokens)
        return SweepLoad(main)
    main = LaneLoad(
        TierLoad(candidate.device_rows, context, device_chunk, offset),
        TierLoad(rides, context, host_tokens, offset),
        logits=candidate.device_rows + rides + (1 if chunk else 0),
    )
    if candidate.strategy != "rendezvous":
        return SweepLoad(main)
    return SweepLoad(main, LaneLoad(host=TierLoad(candidate.host_rows, context)))


class Sweeps:
    """Times of sweeps for one question; equal ones are computed once."""

    def __init__(
        self,
        question: Question,
        footprint: Footprint,
        schedules: Schedules,
        warm_up_sweeps: int = _WARM_UP_SWEEPS,
    ) -> None:
        self._q, self._warm_up = question, warm_up_sweeps
        self._demands = Demands(question, footprint.page)
        self._dram = question.hardware.host.pool_bytes_per_s
        self._schedules = schedules
        self._streamed: dict[int, StreamedLayers] = {}
        self._times: dict[tuple[int, SweepLoad], SweepTime] = {}
        self._floors: dict[SweepLoad, tuple[float, float]] = {}
        self._linear: dict[tuple[int, int], tuple[float, float]] = {}
        self._device: dict[tuple[TierLoad, int], float] = {}
        self._hosted: dict[tuple[TierLoad, int], tuple[float, float, float]] = {}
        load_s, load_dram = self._cost(OpKind.LOAD, Part.NONE, ())
        self._load_s, self._load_dram = load_s, load_dram
        windows = question.model.layer_windows
        self._layers_of = {window: windows.count(window) for window in set(windows)}
        self._layer_with = {window: windows.index(window) for window in self._layers_of}

    @property
    def measured(self) -> MeasuredHost | None:
        """Times on the CPU that were measured; None: they are priced by rates."""
        return self._demands.measured

    def time(self, streamed: int, load: SweepLoad) -> SweepTime:
        """In virtual time, with everything shared."""
        key = (streamed, load)
        if key not in self._times:
            loads = load.lanes
            sweeps = [
                self._priced(self._schedule(streamed, lanes), loads) for lanes in self._lanes(load)
            ]
            found = steady_sweep(sweeps, self._dram)
            # loads that were ahead may make one sweep of a few shorter than many can be
            least_s = self.bound_s(streamed, load)
            self._times[key] = replace(found, period_s=max(found.period_s, least_s))
        return self._times[key]

    def each_operation(self, streamed: int, load: SweepLoad) -> list[PricedSweep]:
        """The sweeps of `time` and one more that follows, each operation by itself."""
        loads = load.lanes
        layers, homes = self._q.model.num_layers, self._homes(streamed)
        return [
            self._priced(schedule_each(layers, lanes, homes), loads)
            for lanes in self._lanes(load, more=1)
        ]

    def _lanes(self, load: SweepLoad, more: int = 0) -> list[tuple[LaneShape, ...]]:
        main = LaneShape(device=bool(load.main.device.tokens), host=bool(load.main.host.tokens))
        first = self._q.model.num_layers // 2 - self._warm_up
        cursors = range(first, first + self._warm_up + 1 + more)
        if load.cohort is None:
            return [(main,) for _ in cursors]
        beside = (main,) if load.main.tokens else ()
        return [
            (*beside, LaneShape(cursor=cursor, suspends=True, device=False, host=True))
            for cursor in cursors
        ]

    def _priced(self, schedule: Schedule, loads: Sequence[LaneLoad]) -> PricedSweep:
        demands = tuple(
            self._demands.of(op, [loads[lane] for lane in op.lanes]) for op in schedule.ops
        )
        return PricedSweep(schedule, demands)

    def _schedule(self, streamed: int, lanes: tuple[LaneShape, ...]) -> Schedule:
        return self._schedules.of(lanes, self._homes(streamed))

    def _homes(self, streamed: int) -> StreamedLayers:
        if streamed not in self._streamed:
            layers = self._q.model.num_layers
            placement = Candidate("gpu-only", streamed, 0, 0).placement(layers)
            self._streamed[streamed] = streamed_layers(placement)
        return self._streamed[streamed]

    # --- the bound --------------------------------------------------------------------------------

    def bound_s(self, streamed: int, load: SweepLoad) -> float:
        """No sweep can be shorter: each resource's work at its full rate, and the chain of a layer.

        Overlap is taken to be perfect but for what a layer's operations wait for, and nothing slows
        anything down.
        """
        if load not in self._floors:
            self._floors[load] = self._floor(load)
        busy_s, dram = self._floors[load]
        # as many as there are slots stay in them
        loads = streamed if streamed > STREAM_SLOTS else 0
        dram += loads * self._load_dram
        return max(busy_s, loads * self._load_s, dram / self._dram)

    def _floor(self, load: SweepLoad) -> tuple[float, float]:
        """What does not depend on streaming: seconds of the longest chain or the CPU, and bytes in
        the host's memory.
        """
        main = load.main
        if load.cohort is not None and not main.tokens:
            return self._cohort_floor(load.cohort)
        ends_s, layer_s = self._linear_s(main)
        chain_s = ends_s
        dram = cpu_s = 0.0
        for window, layers in self._layers_of.items():
            layer = self._layer_with[window]
            host_s, host_dram, host_cpu_s = self._host(main.host, layer)
            chain_s += layers * (layer_s + max(self._device_s(main.device, layer), host_s))
            dram += layers * host_dram
            cpu_s += layers * host_cpu_s
        if load.cohort is not None:
            # one layer's attention per sweep; of several windows, the shortest
            hosted = [self._host(load.cohort.host, layer) for layer in self._layer_with.values()]
            cpu_s += min(part[2] for part in hosted)
            dram += min(part[1] for part in hosted)
        return max(chain_s, cpu_s), dram

    def _cohort_floor(self, cohort: LaneLoad) -> tuple[float, float]:
        """Likewise of a cohort that goes alone: through one layer, the one that takes least."""
        _, layer_s = self._linear_s(cohort)
        hosted = [self._host(cohort.host, layer) for layer in self._layer_with.values()]
        return layer_s + min(part[0] for part in hosted), min(part[1] for part in hosted)

    def _linear_s(self, lane: LaneLoad) -> tuple[float, float]:
        """What does not depend on where the KV lies: before and after the layers, and per layer."""
        key = (lane.tokens, lane.logits)
        if key not in self._linear:
            stages = (OpKind.STAGE, OpKind.STAGE, OpKind.SAMPLE)
            parts = (Part.EMBED, Part.HEAD, Part.NONE)
            ends = [self._cost(*op, [lane])[0] for op in zip(stages, parts, strict=True)]
            layer = [self._cost(OpKind.STAGE, part, [lane])[0] for part in (Part.PRE, Part.POST)]
            merge_s = self._cost(OpKind.MERGE, Part.NONE, [lane])[0]
            self._linear[key] = sum(ends), sum(layer) + merge_s
        return self._linear[key]

    def _device_s(self, tier: TierLoad, layer: int) -> float:
        if not tier.tokens:
            return 0.0
        key = (tier, layer)
        if key not in self._device:
            lanes = [LaneLoad(tier)]
            self._device[key] = sum(
                self._cost(kind, Part.NONE, lanes, layer)[0]
                for kind in (OpKind.APPEND, OpKind.ATTEND)
            )
        return self._device[key]

    def _host(self, tier: TierLoad, layer: int) -> tuple[float, float, float]:
        """Of one layer's attention on the host: the way there and back, bytes, CPU time."""
        if not tier.tokens:
            return 0.0, 0.0, 0.0
        key = (tier, layer)
        if key not in self._hosted:
            lanes = [LaneLoad(host=tier)]
            costs = [
                self._cost(OpKind.COPY, Part.QKV, lanes, layer, Queue.D2H),
                self._cost(OpKind.APPEND, Part.NONE, lanes, layer, Queue.CPU),
                self._cost(OpKind.ATTEND, Part.NONE, lanes, layer, Queue.CPU),
                self._cost(OpKind.COPY, Part.PARTIAL, lanes, layer, Queue.H2D),
            ]
            way_s, dram = (sum(cost[i] for cost in costs) for i in (0, 1))
            self._hosted[key] = way_s, dram, costs[1][0] + costs[2][0]
        return self._hosted[key]

    def _cost(
        self,
        kind: OpKind,
        part: Part,
        lanes: Sequence[LaneLoad],
        layer: int = 0,
        queue: Queue | None = None,
    ) -> tuple[float, float]:
        """Seconds alone, and bytes in the host's memory."""
        queue = queue or (Queue.WEIGHTS if kind is OpKind.LOAD else Queue.ACCEL)
        tier = Tier.HOST if queue is Queue.CPU else Tier.DEVICE
        op = ProgramOp(kind, queue, part, (), layer, 1, (), (), (), tier)
        demand = self._demands.of(op, lanes)
        return demand.alone_s, demand.alone_s * demand.dram_bytes_per_s

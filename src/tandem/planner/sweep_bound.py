"""No sweep can be shorter: each resource's work at its full rate, and the chain of its layers.

Overlap is taken to be perfect but for what a layer's operations wait for, and nothing slows
anything down.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tandem.plan.interposition import token_sweeps
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.candidate import COHORTS, joined_ahead, shared_stages
from tandem.planner.demand import Demands
from tandem.planner.fluid.schedule import SweepCounts
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.question import Question
from tandem.planner.sweep_load import SweepLoad
from tandem.spec.tier import Tier


class Least(NamedTuple):
    """What cannot be less.

    Attributes:
        chain_s: of operations that wait for each other.
        dram_bytes: moved in the host's memory.
        cpu_s: of the CPU's queue.
    """

    chain_s: float = 0.0
    dram_bytes: float = 0.0
    cpu_s: float = 0.0

    def plus(self, other: "Least", times: float = 1) -> "Least":
        """Both, one after the other; `other` so often."""
        return Least(
            self.chain_s + times * other.chain_s,
            self.dram_bytes + times * other.dram_bytes,
            self.cpu_s + times * other.cpu_s,
        )

    def beside(self, other: "Least") -> "Least":
        """Both, neither waiting for the other."""
        chain_s = max(self.chain_s, other.chain_s)
        return Least(chain_s, self.dram_bytes + other.dram_bytes, self.cpu_s + other.cpu_s)


class LeastSweep(NamedTuple):
    """Less than which a sweep does not take that serves any rows, as if they saw no keys.

    Attributes:
        chain_s: of its layers. whole_s: of it, with what else its weights ask for.
        with_prompts_s: likewise, of one that reads prompts, for which no layer is lent.
    """

    chain_s: float
    whole_s: float
    with_prompts_s: float


_ROWS = (64, 128)  # between which attention is taken to grow as anywhere
_ROUNDED_DOWN = 0.99  # keys are counted in whole numbers


class _TokenTimes(NamedTuple):
    """Seconds of one token's arithmetic outside attention.

    Attributes:
        here: in a layer on the accelerator. on_cpu: on the CPU. before: before attention.
        dense: in all layers without experts of a model with some.
    """

    here: float
    on_cpu: float
    before: float
    dense: float


def _token_times(demands: Demands, num_dense: int) -> _TokenTimes:
    whole = (Part.PRE, Part.POST)
    return _TokenTimes(
        demands.token_s(whole),
        demands.token_s(whole, on_cpu=True),
        demands.token_s([Part.PRE]),
        num_dense * demands.token_s(whole, dense=True) if num_dense else 0.0,
    )


class SweepBound:
    """Bounds for one question; equal parts of them are computed once.

    Args:
        like: of another question; of an equal accelerator's, its own operations' times are taken.
    """

    def __init__(
        self, question: Question, demands: Demands, like: "SweepBound | None" = None
    ) -> None:
        self._question, self._demands = question, demands
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
        self._windows = question.model.layer_windows
        self._layers_of = Counter(self._windows)
        self._dense = question.model.dense_layers
        movable = [i for i in range(len(self._windows)) if i not in self._dense]
        # the last one counts: of each window a layer that may be elsewhere, if there is one
        order = (*self._dense, *reversed(movable))
        self._layer_with = {self._windows[layer]: layer for layer in order}
        self._movable, self._num_movable = movable[0], len(movable)
        self._ops: dict[tuple[OpKind, Part, int, Queue], ProgramOp] = {}
        self._load = self._one(OpKind.LOAD, Part.NONE, (), queue=Queue.WEIGHTS)
        self._mlp_loads: dict[int, Least] = {}
        self._token_s = _token_times(demands, len(self._dense))
        self._read = Least()
        if question.hardware.host.disk_bytes_per_s is not None:
            self._read = self._one(OpKind.READ, Part.NONE, (), queue=Queue.DISK)
        self._floors: dict[SweepLoad, Least] = {}
        self._changes: dict[tuple[LaneLoad, int, bool, int], Least] = {}
        self._ends: dict[tuple[int, int], Least] = {}
        self._layers: dict[tuple[int, int], Least] = {}
        self._device: dict[tuple[TierLoad, int], Least] = {}
        if like is not None and question.computes_as_fast_as(like._question):
            self._ends, self._layers, self._device = like._ends, like._layers, like._device
        self._hosted: dict[tuple[TierLoad, int], Least] = {}
        self._turns: dict[int, Least] = {}

    def seconds(self, counts: SweepCounts, load: SweepLoad) -> float:
        """Of a sweep with so many layers streamed or on the CPU."""
        floor = self._floors.get(load)
        if floor is None:
            floor = self._floors[load] = self._floor(load)
        chain_s, dram, cpu_s = floor
        if load.cohort is None and counts.by_window:
            # thousands of these are asked for: sums are made without a tuple for each
            for window, count in counts.by_window:
                change = self._change(load.main, window, counts.whole, counts.experts)
                chain_s += count * change.chain_s
                dram += count * change.dram_bytes
                cpu_s += count * change.cpu_s
            if counts.runs:
                turn = self._turn(load.main)
                chain_s += counts.runs * turn.chain_s
                dram += counts.runs * turn.dram_bytes
        whole, mlps = counts.loads - counts.mlp_loads, counts.mlp_loads
        mlp_load = self._mlp_load(counts.experts)
        loads_s = whole * self._load.chain_s + mlps * mlp_load.chain_s
        reads_s = counts.reads * self._read.chain_s
        dram += counts.reads * self._read.dram_bytes
        dram += whole * self._load.dram_bytes + mlps * mlp_load.dram_bytes
        return max(chain_s, cpu_s, loads_s, reads_s, dram / self._dram_bytes_per_s)

    def _mlp_load(self, experts: int) -> Least:
        """Of an MLP, or of what is left of a mixture without so many experts."""
        if experts not in self._mlp_loads:
            load = self._one(OpKind.LOAD, Part.MLP, (), queue=Queue.WEIGHTS, experts=experts)
            self._mlp_loads[experts] = load
        return self._mlp_loads[experts]

    def token_s(self, whole_on_cpu: int, mlps_on_cpu: int, experts: int) -> float:
        """Less than which no token takes, in arithmetic alone: one layer waits for the other.

        Args:
            whole_on_cpu: layers that the CPU computes. mlps_on_cpu: likewise MLPs of others.
            experts: of such an MLP, those that it does not.
        """
        times = self._token_s
        apart = times.before + self._demands.mlp_token_s(experts) if mlps_on_cpu else 0.0
        here = self._num_movable - whole_on_cpu - mlps_on_cpu
        return times.dense + here * times.here + whole_on_cpu * times.on_cpu + mlps_on_cpu * apart

    def least(self, counts: SweepCounts, lendable: int) -> LeastSweep:
        """Less than which no sweep takes that serves any rows and goes through all layers.

        Args:
            counts: with none lent. lendable: of the streamed layers, as many as that may be.
        """
        part = Part.POST if counts.whole or (lendable and not counts.mlp_loads) else Part.MLP
        lanes = [LaneLoad(TierLoad(1), logits=1)]
        on_cpu_s = self._one(OpKind.STAGE, part, lanes, self._movable, Queue.CPU).chain_s
        # of mixtures, a share is on either side
        more_s = max(0.0, on_cpu_s - self._layer(1, self._movable).chain_s)
        more_s = 0.0 if counts.experts else more_s
        chain_s = self._all_stages(lanes[0]).chain_s
        chain_s += more_s * sum(count for _, count in counts.by_window)
        mlps, mlp_s = counts.mlp_loads, self._mlp_load(counts.experts).chain_s
        loads_s = (counts.loads - mlps) * self._load.chain_s + mlps * mlp_s
        unlent_s = whole_s = max(chain_s, loads_s, counts.reads * self._read.chain_s)
        if lendable and loads_s > chain_s:
            # what is lent is not loaded: as many as make both equally long, or all
            each_s = mlp_s if mlps else self._load.chain_s
            balanced = (loads_s - chain_s) / (each_s + more_s)
            whole_s = chain_s + min(balanced, lendable) * more_s
        return LeastSweep(chain_s, whole_s, unlent_s)

    def row_s(self, context: float) -> float:
        """Less than which attention takes longer by each row of a main lane, in whichever tier."""
        total_s = 0.0
        for window, count in self._layers_of.items():
            layer = self._layer_with[window]
            some, more = (TierLoad(rows, context) for rows in _ROWS)
            here_s = self._device_part(more, layer).chain_s - self._device_part(some, layer).chain_s
            there_s = self._host(more, layer).cpu_s - self._host(some, layer).cpu_s
            # in both at once, rows are divided so that neither waits for the other
            total_s += count / (1 / here_s + 1 / there_s)
        return _ROUNDED_DOWN * total_s / (_ROWS[1] - _ROWS[0])

    def attention_s(self, lane: LaneLoad) -> float:
        """Less than which attention of such a lane, or of one with more, takes in no sweep,
        wherever weights lie: each layer waits for it.
        """
        total_s = 0.0
        for window, count in self._layers_of.items():
            layer = self._layer_with[window]
            here_s = self._device_part(lane.device, layer).chain_s
            total_s += count * max(here_s, self._host(lane.host, layer).cpu_s)
        return total_s

    def _floor(self, load: SweepLoad) -> Least:
        """All layers on the accelerator, which has their weights."""
        main = load.main
        if load.cohort is not None and load.halves:
            return self._halves_floor(main, load.cohort)
        if load.cohort is not None and not main.tokens:
            return self._cohort_floor(load.cohort)
        stages = self._all_stages(main)
        work = stages
        for window, count in self._layers_of.items():
            work = work.plus(self._attention(main, self._layer_with[window]), count)
        if load.cohort is None:
            return work
        if load.passes:
            return self._beside_passes(load, load.cohort, work, stages.chain_s)
        work = work.plus(Least(self._sharing_s(load, load.cohort)))
        if load.ahead:
            return self._beside_ahead(load.cohort, work)
        # one layer's attention per sweep; of several windows, the shortest
        hosted = [self._host(load.cohort.host, layer) for layer in self._layer_with.values()]
        least = Least(0.0, min(w.dram_bytes for w in hosted), min(w.cpu_s for w in hosted))
        return work.plus(least)

    def _sharing_s(self, load: SweepLoad, cohort: LaneLoad) -> float:
        """By how much longer stages take that a cohort shares with the others."""
        here, both = load.main.tokens, load.main.tokens + cohort.tokens
        longer_s = min(
            self._layer(both, layer).chain_s - self._layer(here, layer).chain_s
            for layer in (self._movable, *self._dense[:1])
        )
        return shared_stages(self._question.model, ahead=load.ahead) * longer_s

    def _beside_ahead(self, cohort: LaneLoad, main: Least) -> Least:
        """The mean of a token's sweeps, in which two cohorts leave all layers behind.

        Args:
            main: the others' work.
        """
        work, layers = main, len(self._windows)
        for window, count in self._layers_of.items():
            hosted = self._host(cohort.host, self._layer_with[window])._replace(chain_s=0.0)
            work = work.plus(hosted, COHORTS * joined_ahead(layers) * count / layers)
        return work

    def _all_stages(self, lane: LaneLoad) -> Least:
        """All but attention."""
        work = self._ends_of(lane).plus(self._layer(lane.tokens, self._movable), self._num_movable)
        if self._dense:
            work = work.plus(self._layer(lane.tokens, self._dense[0]), len(self._dense))
        return work

    def _beside_passes(
        self, load: SweepLoad, cohort: LaneLoad, main: Least, stages_s: float
    ) -> Least:
        """The mean of a token's sweeps, in which a cohort leaves all layers behind.

        Its passes come on top of all that the accelerator does for the others, but may lie beside
        what those wait for elsewhere.

        Args:
            main: the others' work. stages_s: of it, the accelerator's outside attention.
        """
        sweeps = token_sweeps(len(self._windows), load.passes)
        passes = sum(visit.layer != visit.at for visits in sweeps for visit in visits)
        layers = (self._movable, *self._dense[:1])
        each_s = min(self._layer(cohort.tokens, layer).chain_s for layer in layers)
        computed_s = stages_s + passes * each_s / len(sweeps)
        work = main
        for window, count in self._layers_of.items():
            layer = self._layer_with[window]
            computed_s += count * self._device_part(load.main.device, layer).chain_s
            hosted = self._host(cohort.host, layer)._replace(chain_s=0.0)
            work = work.plus(hosted, count / len(sweeps))
        return work._replace(chain_s=max(main.chain_s, computed_s))

    def _cohort_floor(self, cohort: LaneLoad) -> Least:
        """Of a cohort that goes alone: through one layer, the one that takes least."""
        layers = (self._movable, *self._dense[:1])
        linear_s = min(self._layer(cohort.tokens, layer).chain_s for layer in layers)
        hosted = [self._host(cohort.host, layer) for layer in self._layer_with.values()]
        way_s, dram = min(w.chain_s for w in hosted), min(w.dram_bytes for w in hosted)
        return Least(linear_s + way_s, dram)

    def _halves_floor(self, main: LaneLoad, half: LaneLoad) -> Least:
        """The mean of the two sweeps in which both halves leave all layers behind: in each, as many
        stages and attentions as one of them has in a token. What one waits for, the other may hide.
        """
        stages = self._all_stages(half)
        dram, cpu_s = stages.dram_bytes, 0.0
        for window, count in self._layers_of.items():
            hosted = self._host(half.host, self._layer_with[window])
            dram += count * hosted.dram_bytes
            cpu_s += count * hosted.cpu_s
        if not main.tokens:
            return Least(stages.chain_s, dram, cpu_s)
        others = self._all_stages(main)
        computed_s = stages.chain_s + others.chain_s
        for window, count in self._layers_of.items():
            others = others.plus(self._attention(main, self._layer_with[window]), count)
        chain_s = max(others.chain_s, computed_s)
        return Least(chain_s, dram + others.dram_bytes, cpu_s + others.cpu_s)

    def _attention(self, lane: LaneLoad, layer: int) -> Least:
        """Of one layer whose queries are on the accelerator."""
        return self._device_part(lane.device, layer).beside(self._host(lane.host, layer))

    def _ends_of(self, lane: LaneLoad) -> Least:
        """Before and after the layers."""
        key = (lane.tokens, lane.logits)
        found = self._ends.get(key)
        if found is None:
            found = self._all([lane], (OpKind.STAGE, Part.EMBED), (OpKind.STAGE, Part.HEAD),
                              (OpKind.SAMPLE, Part.NONE))  # fmt: skip
            self._ends[key] = found
        return found

    def _layer(self, tokens: int, layer: int) -> Least:
        """Its operations outside attention, which do not depend on where the KV lies."""
        key = (tokens, layer)
        found = self._layers.get(key)
        if found is None:
            lanes = [LaneLoad(TierLoad(tokens))]
            found = self._all(lanes, (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.POST),
                              (OpKind.MERGE, Part.NONE), layer=layer)  # fmt: skip
            self._layers[key] = found
        return found

    def _all(
        self, lanes: Sequence[LaneLoad], *ops: tuple[OpKind, Part], layer: int | None = None
    ) -> Least:
        """Operations of the accelerator, one after the other."""
        work = Least()
        for kind, part in ops:
            work = work.plus(
                self._one(kind, part, lanes, self._movable if layer is None else layer)
            )
        return work

    def _device_part(self, tier: TierLoad, layer: int) -> Least:
        if not tier.tokens:
            return Least()
        key = (tier, layer)
        if key not in self._device:
            lanes = [LaneLoad(tier)]
            append = self._one(OpKind.APPEND, Part.NONE, lanes, layer)
            self._device[key] = append.plus(self._one(OpKind.ATTEND, Part.NONE, lanes, layer))
        return self._device[key]

    def _host(self, tier: TierLoad, layer: int) -> Least:
        """One layer's attention on the host, and the way there and back."""
        if not tier.tokens:
            return Least()
        key = (tier, layer)
        if key not in self._hosted:
            lanes = [LaneLoad(host=tier)]
            there = self._one(OpKind.COPY, Part.QKV, lanes, layer, Queue.D2H)
            back = self._one(OpKind.COPY, Part.PARTIAL, lanes, layer, Queue.H2D)
            self._hosted[key] = there.plus(self._host_part(tier, layer)).plus(back)
        return self._hosted[key]

    def _host_part(self, tier: TierLoad, layer: int) -> Least:
        """The same without the way."""
        if not tier.tokens:
            return Least()
        lanes = [LaneLoad(host=tier)]
        append = self._one(OpKind.APPEND, Part.NONE, lanes, layer, Queue.CPU)
        return append.plus(self._one(OpKind.ATTEND, Part.NONE, lanes, layer, Queue.CPU))

    # --- layers on the CPU ------------------------------------------------------------------------

    def _change(self, lane: LaneLoad, window: int, whole: bool, experts: int) -> Least:
        """What it adds that a layer, or else its MLP, is computed on the CPU.

        Args:
            experts: of the MLP, those that are not.
        """
        key = (lane, window, whole, experts)
        found = self._changes.get(key)
        if found is None:
            layer = self._layer_with[window]
            linear = self._layer(lane.tokens, self._movable)
            before = linear.plus(self._attention(lane, layer))
            if whole:
                after = self._cpu_layer(lane, layer)
            elif experts:
                after = self._cpu_experts(lane, layer, experts)
            else:
                after = self._cpu_mlp(lane, layer)
            found = self._changes[key] = after.plus(before, -1)
        return found

    def _cpu_layer(self, lane: LaneLoad, layer: int) -> Least:
        cpu, lanes = Queue.CPU, [lane]
        work = self._one(OpKind.STAGE, Part.PRE, lanes, layer, cpu)
        work = work.plus(self._one(OpKind.MERGE, Part.NONE, lanes, layer, cpu))
        work = work.plus(self._one(OpKind.STAGE, Part.POST, lanes, layer, cpu))
        device = Least()
        if lane.device.tokens:
            up = self._one(OpKind.COPY, Part.QKV, lanes, layer, Queue.H2D)
            down = self._one(OpKind.COPY, Part.PARTIAL, lanes, layer, Queue.D2H)
            device = up.plus(self._device_part(lane.device, layer)).plus(down)
        return work.plus(device.beside(self._host_part(lane.host, layer)))

    def _cpu_mlp(self, lane: LaneLoad, layer: int) -> Least:
        work = self._all([lane], (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.OUTPUT),
                         (OpKind.MERGE, Part.NONE))  # fmt: skip
        work = work.plus(self._attention(lane, layer)).plus(self._turn(lane))
        return work.plus(self._one(OpKind.STAGE, Part.MLP, [lane], layer, Queue.CPU))

    def _cpu_experts(self, lane: LaneLoad, layer: int, experts: int) -> Least:
        """Both sides of a mixture at once."""
        work = self._all([lane], (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.ROUTE),
                         (OpKind.MERGE, Part.NONE))  # fmt: skip
        work = work.plus(self._attention(lane, layer))
        there = self._one(OpKind.COPY, Part.ROUTE, [lane], queue=Queue.D2H)
        there = there.plus(self._one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.H2D))
        mlp = self._one(OpKind.STAGE, Part.MLP, [lane], layer, Queue.CPU, experts)
        here = self._one(OpKind.STAGE, Part.EXPERTS, [lane], layer, experts=experts)
        return work.plus(there.plus(mlp).beside(here))

    def _turn(self, lane: LaneLoad) -> Least:
        """Residuals to the CPU and back."""
        if lane.tokens not in self._turns:
            self._turns[lane.tokens] = self._turn_of(lane)
        return self._turns[lane.tokens]

    def _turn_of(self, lane: LaneLoad) -> Least:
        down = self._one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.D2H)
        return down.plus(self._one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.H2D))

    def _one(
        self,
        kind: OpKind,
        part: Part,
        lanes: Sequence[LaneLoad],
        layer: int = 0,
        queue: Queue = Queue.ACCEL,
        experts: int = 0,
    ) -> Least:
        """A single operation."""
        key = (kind, part, layer, queue)
        op = self._ops.get(key)
        if op is None:
            tier = Tier.HOST if queue is Queue.CPU else Tier.DEVICE
            op = self._ops[key] = ProgramOp(kind, queue, part, (), layer, 1, (), (), (), tier)
        demand = self._demands.of(op, lanes, experts=experts)
        cpu_s = demand.alone_s if queue is Queue.CPU else 0.0
        return Least(demand.alone_s, demand.alone_s * demand.dram_bytes_per_s, cpu_s)

"""No sweep can be shorter: each resource's work at its full rate, and the chain of its layers.

Overlap is taken to be perfect but for what a layer's operations wait for, and nothing slows
anything down.
"""

from typing import NamedTuple

from tandem.plan.interposition import own_visits, token_sweeps
from tandem.plan.program import Part
from tandem.planner.bound.cpu_layers import CpuLayers
from tandem.planner.bound.layer_bound import LayerBound
from tandem.planner.bound.least import Least
from tandem.planner.candidate import COHORTS, joined_ahead, shared_stages
from tandem.planner.demand import Demands
from tandem.planner.fluid.schedule import SweepCounts
from tandem.planner.load import LaneLoad
from tandem.planner.question import Question
from tandem.planner.sweep_load import SweepLoad


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
        parts: of its layers' operations.
    """

    def __init__(self, question: Question, demands: Demands, parts: LayerBound) -> None:
        self._question, self._demands, self._parts = question, demands, parts
        self._dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
        self._num_layers = question.model.num_layers
        self._token_s = _token_times(demands, len(parts.dense))
        self._floors: dict[SweepLoad, Least] = {}
        self._on_cpu = CpuLayers(parts)

    def seconds(self, counts: SweepCounts, load: SweepLoad) -> float:
        """Of a sweep with so many layers streamed or on the CPU."""
        floor = self._floors.get(load)
        if floor is None:
            floor = self._floors[load] = self._floor(load)
        chain_s, dram, cpu_s = floor
        if load.cohort is None and counts.by_window:
            # thousands of these are asked for: sums are made without a tuple for each
            for window, count in counts.by_window:
                change = self._on_cpu.of(load.main, window, counts.whole, counts.experts)
                chain_s += count * change.chain_s
                dram += count * change.dram_bytes
                cpu_s += count * change.cpu_s
            if counts.runs:
                turn = self._on_cpu.turn(load.main)
                chain_s += counts.runs * turn.chain_s
                dram += counts.runs * turn.dram_bytes
        whole, mlps = counts.loads - counts.mlp_loads, counts.mlp_loads
        mlp_load = self._parts.mlp_load(counts.experts)
        loads_s = whole * self._parts.load.chain_s + mlps * mlp_load.chain_s
        reads_s = counts.reads * self._parts.read.chain_s
        dram += counts.reads * self._parts.read.dram_bytes
        dram += whole * self._parts.load.dram_bytes + mlps * mlp_load.dram_bytes
        return max(chain_s, cpu_s, loads_s, reads_s, dram / self._dram_bytes_per_s)

    def token_s(self, whole_on_cpu: int, mlps_on_cpu: int, experts: int) -> float:
        """Less than which no token takes, in arithmetic alone: one layer waits for the other.

        Args:
            whole_on_cpu: layers that the CPU computes. mlps_on_cpu: likewise MLPs of others.
            experts: of such an MLP, those that it does not.
        """
        times, on_cpu = self._token_s, whole_on_cpu + mlps_on_cpu
        there_s = on_cpu * self.cpu_token_s(experts, whole=not mlps_on_cpu) if on_cpu else 0.0
        return times.dense + (self._parts.num_movable - on_cpu) * times.here + there_s

    def cpu_token_s(self, experts: int, *, whole: bool) -> float:
        """Likewise, in a layer that the CPU computes, or else its MLP.

        Args:
            experts: of the MLP, those that it does not.
        """
        times = self._token_s
        return times.on_cpu if whole else times.before + self._demands.mlp_token_s(experts)

    def _floor(self, load: SweepLoad) -> Least:
        """All layers on the accelerator, which has their weights."""
        main = load.main
        if load.cohort is not None and load.halves:
            return self._halves_floor(main, load.cohort)
        if load.cohort is not None and not main.tokens:
            return self._cohort_floor(load.cohort)
        stages = self._parts.all_stages(main)
        work = stages
        for layer, count in self._parts.kinds:
            work = work.plus(self._parts.attention(main, layer), count)
        if load.cohort is None:
            return work
        if load.passes:
            return self._beside_passes(load, load.cohort, work, stages.chain_s)
        work = work.plus(Least(self._sharing_s(load, load.cohort)))
        if load.ahead:
            return self._beside_ahead(load.cohort, work)
        # one layer's attention per sweep; of several windows, the shortest
        hosted = [self._parts.host(load.cohort.host, layer) for layer, _ in self._parts.kinds]
        least = Least(0.0, min(w.dram_bytes for w in hosted), min(w.cpu_s for w in hosted))
        return work.plus(least)

    def _sharing_s(self, load: SweepLoad, cohort: LaneLoad) -> float:
        """By how much longer stages take that a cohort shares with the others."""
        here, both = load.main.tokens, load.main.tokens + cohort.tokens
        longer_s = min(
            self._parts.layer(both, layer).chain_s - self._parts.layer(here, layer).chain_s
            for layer in (self._parts.movable, *self._parts.dense[:1])
        )
        return shared_stages(self._question.model, ahead=load.ahead) * longer_s

    def _beside_ahead(self, cohort: LaneLoad, main: Least) -> Least:
        """The mean of a token's sweeps, in which two cohorts leave all layers behind.

        Args:
            main: the others' work.
        """
        work, layers = main, self._num_layers
        for layer, count in self._parts.kinds:
            hosted = self._parts.host(cohort.host, layer)
            times = COHORTS * joined_ahead(layers) * count / layers
            work = work.plus(Least(0.0, hosted.dram_bytes, hosted.cpu_s), times)
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
        sweeps = token_sweeps(self._num_layers, load.passes)
        passes = own_visits(self._num_layers, load.passes)
        layers = (self._parts.movable, *self._parts.dense[:1])
        each_s = min(self._parts.layer(cohort.tokens, layer).chain_s for layer in layers)
        computed_s = stages_s + passes * each_s / len(sweeps)
        work = main
        for layer, count in self._parts.kinds:
            computed_s += count * self._parts.device_part(load.main.device, layer).chain_s
            hosted = self._parts.host(cohort.host, layer)
            work = work.plus(Least(0.0, hosted.dram_bytes, hosted.cpu_s), count / len(sweeps))
        return work._replace(chain_s=max(main.chain_s, computed_s))

    def _cohort_floor(self, cohort: LaneLoad) -> Least:
        """Of a cohort that goes alone: through one layer, the one that takes least."""
        layers = (self._parts.movable, *self._parts.dense[:1])
        linear_s = min(self._parts.layer(cohort.tokens, layer).chain_s for layer in layers)
        hosted = [self._parts.host(cohort.host, layer) for layer, _ in self._parts.kinds]
        way_s, dram = min(w.chain_s for w in hosted), min(w.dram_bytes for w in hosted)
        return Least(linear_s + way_s, dram)

    def _halves_floor(self, main: LaneLoad, half: LaneLoad) -> Least:
        """The mean of the two sweeps in which both halves leave all layers behind: in each, as many
        stages and attentions as one of them has in a token. What one waits for, the other may hide.
        """
        stages = self._parts.all_stages(half)
        dram, cpu_s = stages.dram_bytes, 0.0
        for layer, count in self._parts.kinds:
            hosted = self._parts.host(half.host, layer)
            dram += count * hosted.dram_bytes
            cpu_s += count * hosted.cpu_s
        if not main.tokens:
            return Least(stages.chain_s, dram, cpu_s)
        others = self._parts.all_stages(main)
        computed_s = stages.chain_s + others.chain_s
        for layer, count in self._parts.kinds:
            others = others.plus(self._parts.attention(main, layer), count)
        chain_s = max(others.chain_s, computed_s)
        return Least(chain_s, dram + others.dram_bytes, cpu_s + others.cpu_s)

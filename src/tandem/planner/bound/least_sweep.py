"""What all sweeps take with the same layers elsewhere, and what each row adds to that."""

from typing import NamedTuple

from tandem.plan.program import OpKind, Part, Queue
from tandem.planner.bound.cpu_layers import CpuLayers
from tandem.planner.bound.layer_bound import LayerBound
from tandem.planner.bound.least import Least
from tandem.planner.fluid.schedule import SweepCounts
from tandem.planner.load import LaneLoad, TierLoad

_ROWS = (64, 128)  # between which attention is taken to grow as anywhere
_ROUNDED_DOWN = 0.99  # keys are counted in whole numbers


class LeastSweep(NamedTuple):
    """Less than which a sweep does not take that serves any rows, as if they saw no keys.

    Attributes:
        chain_s: of its layers. whole_s: of it, with what else its weights ask for.
        with_prompts_s: likewise, of one that reads prompts, for which no layer is lent.
        loads_s: for which weights take the link if none are lent. each_s: a load of what may be.
        moved_s: for which they take link or disk, likewise.
    """

    chain_s: float
    whole_s: float
    with_prompts_s: float
    loads_s: float
    each_s: float
    moved_s: float


class LeastSweeps:
    """Of one question."""

    def __init__(self, bound: LayerBound) -> None:
        self._bound, self._on_cpu = bound, CpuLayers(bound)
        self._cpu_layers: dict[tuple[int, bool], Least] = {}

    def of(self, counts: SweepCounts, lendable: int) -> LeastSweep:
        """Less than which no sweep takes that serves any rows and goes through all layers.

        Args:
            counts: with none lent. lendable: of the streamed layers, as many as that may be.
        """
        part = Part.POST if counts.whole or (lendable and not counts.mlp_loads) else Part.MLP
        lanes = [LaneLoad(TierLoad(1), logits=1)]
        on_cpu_s = self._bound.one(
            OpKind.STAGE, part, lanes, self._bound.movable, Queue.CPU
        ).chain_s
        more_s = max(0.0, on_cpu_s - self._bound.layer(1, self._bound.movable).chain_s)
        chain_s = self._bound.all_stages(lanes[0]).chain_s
        on_cpu = sum(count for _, count in counts.by_window)
        if counts.experts:
            more_s = 0.0
            chain_s += (on_cpu + lendable) * self._in_part_s(lanes[0], counts.experts)
        chain_s += more_s * on_cpu
        mlps, mlp_s = counts.mlp_loads, self._bound.mlp_load(counts.experts).chain_s
        loads_s = (counts.loads - mlps) * self._bound.load.chain_s + mlps * mlp_s
        moved_s = max(loads_s, counts.reads * self._bound.read.chain_s)
        unlent_s = whole_s = max(chain_s, moved_s)
        each_s = mlp_s if mlps else self._bound.load.chain_s
        if lendable and loads_s > chain_s:
            # what is lent is not loaded: as many as make both equally long, or all
            balanced = (loads_s - chain_s) / (each_s + more_s)
            whole_s = chain_s + min(balanced, lendable) * more_s
        return LeastSweep(chain_s, whole_s, unlent_s, loads_s, each_s, moved_s)

    def _in_part_s(self, lane: LaneLoad, experts: int) -> float:
        """What it adds, at most nothing, that both sides compute their share of a mixture at once:
        of few experts on the CPU, that may take less than the whole mixture does here.

        Args:
            experts: on the accelerator.
        """
        movable = [
            w for w, layer in self._bound.layer_with.items() if layer not in self._bound.dense
        ]
        return min(0.0, *(self._on_cpu.of(lane, w, False, experts).chain_s for w in movable))

    def stages_s(self, tokens: int, logits: int) -> float:
        """All but attention of a main lane, on the accelerator."""
        return self._bound.all_stages(LaneLoad(TierLoad(tokens), logits=logits)).chain_s

    def layer_s(self, tokens: int) -> float:
        """Of that, a layer that may be elsewhere."""
        return self._bound.layer(tokens, self._bound.movable).chain_s

    def cpu_layer_s(self, rows: int, experts: int, *, whole: bool) -> float:
        """Less than which such a layer does not take without attention that the CPU computes, or
        its MLP.

        Args:
            experts: of the MLP, those that are not.
        """
        if experts:  # as of one row: the more there are, the more the accelerator may save by it
            return self.layer_s(1) + self._in_part_s(LaneLoad(TierLoad(1)), experts)
        key = rows, whole
        found = self._cpu_layers.get(key)
        if found is None:
            lane, part = LaneLoad(TierLoad(rows)), Part.POST if whole else Part.MLP
            found = self._bound.one(OpKind.STAGE, part, [lane], self._bound.movable, Queue.CPU)
            self._cpu_layers[key] = found
        return found.chain_s

    def row_s(self, context: float) -> float:
        """Less than which attention takes longer by each row of a main lane, in whichever tier."""
        total_s = 0.0
        for layer, count in self._bound.kinds:
            some, more = (TierLoad(rows, context) for rows in _ROWS)
            here_s = (
                self._bound.device_part(more, layer).chain_s
                - self._bound.device_part(some, layer).chain_s
            )
            there_s = self._bound.host(more, layer).cpu_s - self._bound.host(some, layer).cpu_s
            # in both at once, rows are divided so that neither waits for the other
            total_s += count / (1 / here_s + 1 / there_s)
        return _ROUNDED_DOWN * total_s / (_ROWS[1] - _ROWS[0])

    def attention_s(self, lane: LaneLoad) -> float:
        """Less than which attention of such a lane, or of one with more, takes in no sweep,
        wherever weights lie: each layer waits for it.
        """
        total_s = 0.0
        for layer, count in self._bound.kinds:
            here_s = self._bound.device_part(lane.device, layer).chain_s
            total_s += count * max(here_s, self._bound.host(lane.host, layer).cpu_s)
        return total_s

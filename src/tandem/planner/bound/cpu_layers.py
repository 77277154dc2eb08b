"""What it adds to a sweep's bound that the CPU computes some layers, or their MLPs."""

from tandem.plan.program import OpKind, Part, Queue
from tandem.planner.bound.layer_bound import LayerBound
from tandem.planner.bound.least import Least
from tandem.planner.load import LaneLoad


class CpuLayers:
    """Of one question; equal changes are computed once."""

    def __init__(self, bound: LayerBound) -> None:
        self._bound = bound
        self._changes: dict[tuple[LaneLoad, int, bool, int], Least] = {}
        self._turns: dict[int, Least] = {}

    def of(self, lane: LaneLoad, window: int, whole: bool, experts: int) -> Least:
        """What it adds that a layer, or else its MLP, is computed on the CPU.

        Args:
            experts: of the MLP, those that are not.
        """
        key = (lane, window, whole, experts)
        found = self._changes.get(key)
        if found is None:
            layer = self._bound.layer_with[window]
            linear = self._bound.layer(lane.tokens, self._bound.movable)
            before = linear.plus(self._bound.attention(lane, layer))
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
        work = self._bound.one(OpKind.STAGE, Part.PRE, lanes, layer, cpu)
        work = work.plus(self._bound.one(OpKind.MERGE, Part.NONE, lanes, layer, cpu))
        work = work.plus(self._bound.one(OpKind.STAGE, Part.POST, lanes, layer, cpu))
        device = Least()
        if lane.device.tokens:
            up = self._bound.one(OpKind.COPY, Part.QKV, lanes, layer, Queue.H2D)
            down = self._bound.one(OpKind.COPY, Part.PARTIAL, lanes, layer, Queue.D2H)
            device = up.plus(self._bound.device_part(lane.device, layer)).plus(down)
        return work.plus(device.beside(self._bound.host_part(lane.host, layer)))

    def _cpu_mlp(self, lane: LaneLoad, layer: int) -> Least:
        work = self._bound.all([lane], (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.OUTPUT),
                               (OpKind.MERGE, Part.NONE))  # fmt: skip
        work = work.plus(self._bound.attention(lane, layer)).plus(self.turn(lane))
        return work.plus(self._bound.one(OpKind.STAGE, Part.MLP, [lane], layer, Queue.CPU))

    def _cpu_experts(self, lane: LaneLoad, layer: int, experts: int) -> Least:
        """Both sides of a mixture at once."""
        work = self._bound.all([lane], (OpKind.STAGE, Part.PRE), (OpKind.STAGE, Part.ROUTE),
                               (OpKind.MERGE, Part.NONE))  # fmt: skip
        work = work.plus(self._bound.attention(lane, layer))
        there = self._bound.one(OpKind.COPY, Part.ROUTE, [lane], queue=Queue.D2H)
        there = there.plus(self._bound.one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.H2D))
        mlp = self._bound.one(OpKind.STAGE, Part.MLP, [lane], layer, Queue.CPU, experts)
        here = self._bound.one(OpKind.STAGE, Part.EXPERTS, [lane], layer, experts=experts)
        return work.plus(there.plus(mlp).beside(here))

    def turn(self, lane: LaneLoad) -> Least:
        """Residuals to the CPU and back."""
        if lane.tokens not in self._turns:
            self._turns[lane.tokens] = self._turn_of(lane)
        return self._turns[lane.tokens]

    def _turn_of(self, lane: LaneLoad) -> Least:
        down = self._bound.one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.D2H)
        return down.plus(self._bound.one(OpKind.COPY, Part.RESIDUAL, [lane], queue=Queue.H2D))

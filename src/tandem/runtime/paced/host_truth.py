"""What a described host truly takes for its part, where the work is not done but only timed."""

import random
from dataclasses import replace

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, append_cost, attention_cost, stage_cost
from tandem.cost.sweep_time import HOST_OPERATION_S
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind, Part
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.hardware import HostFacts
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import split_post
from tandem.spec.tier import Tier


class HostTruth:
    """Durations of appends, attention and MLPs on the CPU in virtual time.

    Args:
        host: as it truly is; its memory is read, and its cores compute, at these rates.
        change: jitter.
    """

    def __init__(
        self, model: ModelSpec, page: KVPageSpec, host: HostFacts, change: Perturbation
    ) -> None:
        self._rates = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._model, self._dtype = model, page.float_type
        self._operations = [layer_operations(model, i) for i in range(model.num_layers)]
        self._stage_rates = replace(self._rates, kernel_overhead_s=HOST_OPERATION_S)
        self._jitter, self._draw = change.jitter, random.Random(change.seed)

    def duration_s(self, task: HostTask) -> float:
        """Of an append, an attention or an MLP."""
        op, program = task.entry.op, task.entry.program
        of_mlps = op.kind is OpKind.STAGE and op.part is Part.MLP
        assert of_mlps or op.kind in (OpKind.APPEND, OpKind.ATTEND), "no plan of blocks has others"
        seconds = 0.0
        for number in program.active(op):
            lane = program.lanes[number]
            assert isinstance(lane, PacedLane)
            if of_mlps:
                seconds += self._mlp(lane, op.layer).total_s
            elif op.kind is OpKind.APPEND:
                seconds += self._append(lane).total_s
            else:
                seconds += self._attention(lane, op.layer).total_s
        return seconds * (1 + self._draw.uniform(-self._jitter, self._jitter))

    def _mlp(self, lane: PacedLane, layer: int) -> CostBreakdown:
        operations = self._operations[layer]
        mlp = split_post(operations).mlp.of(operations)
        return stage_cost(mlp, lane.work.tokens, self._dtype, self._stage_rates)

    def _append(self, lane: PacedLane) -> CostBreakdown:
        tokens = lane.work.num_appended(Tier.HOST)
        return append_cost(self._model, tokens, self._dtype, self._rates)

    def _attention(self, lane: PacedLane, layer: int) -> CostBreakdown:
        work = lane.work.attention(Tier.HOST, layer)
        return attention_cost(self._operations[layer], work, self._dtype, self._rates)

"""What a described host truly takes for its part, where the work is not done but only timed."""

import random
from dataclasses import replace

from tandem.cost.rates import DeviceRates
from tandem.cost.stage import (
    CostBreakdown,
    append_cost,
    attention_cost,
    merge_cost,
    stage_cost,
)
from tandem.cost.sweep_time import HOST_OPERATION_S
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind, Part, ProgramOp
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.hardware import HostFacts
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import default_stages, split_post
from tandem.spec.tier import Tier


class HostTruth:
    """Durations of appends, attention, layers and MLPs on the CPU in virtual time.

    Args:
        host: as it truly is; its memory is read, and its cores compute, at these rates.
        change: jitter.
        cpu_columns: of MLPs that are computed on both sides, the CPU's.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        host: HostFacts,
        change: Perturbation,
        cpu_columns: int = 0,
    ) -> None:
        self._rates = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._model, self._dtype = model, page.float_type
        self._operations = [layer_operations(model, i) for i in range(model.num_layers)]
        self._cpu_share = cpu_columns / model.intermediate_size
        self._stage_rates = replace(self._rates, kernel_overhead_s=HOST_OPERATION_S)
        self._jitter, self._draw = change.jitter, random.Random(change.seed)

    def duration_s(self, task: HostTask) -> float:
        """Of any operation of the CPU's queue."""
        op, program = task.entry.op, task.entry.program
        seconds = 0.0
        for number in program.active(op):
            lane = program.lanes[number]
            assert isinstance(lane, PacedLane)
            seconds += self._cost(op, lane).total_s
        return seconds * (1 + self._draw.uniform(-self._jitter, self._jitter))

    def _cost(self, op: ProgramOp, lane: PacedLane) -> CostBreakdown:
        if op.kind is OpKind.STAGE:
            return self._stage(op, lane.work.tokens)
        if op.kind is OpKind.MERGE:
            return merge_cost(self._model, lane.work.tokens, self._stage_rates)
        return self._append(lane) if op.kind is OpKind.APPEND else self._attention(lane, op.layer)

    def _stage(self, op: ProgramOp, tokens: int) -> CostBreakdown:
        operations = self._operations[op.layer]
        pre, _, post = default_stages(operations)
        mlp = split_post(operations).mlp
        stages = {Part.PRE: pre, Part.POST: post, Part.MLP: mlp, Part.COLUMNS: mlp}
        stage = stages[op.part].of(operations)
        whole = stage_cost(stage, tokens, self._dtype, self._stage_rates)
        return whole.part(self._cpu_share) if op.part is Part.COLUMNS else whole

    def _append(self, lane: PacedLane) -> CostBreakdown:
        tokens = lane.work.num_appended(Tier.HOST)
        return append_cost(self._model, tokens, self._dtype, self._rates)

    def _attention(self, lane: PacedLane, layer: int) -> CostBreakdown:
        work = lane.work.attention(Tier.HOST, layer)
        return attention_cost(self._operations[layer], work, self._dtype, self._rates)

"""What a described host truly takes for its part, where the work is not done but only timed."""

import random
from dataclasses import replace

from tandem.cost.quantized import COMPILED, PreciseStage
from tandem.cost.rates import HOST_OPERATION_S, DeviceRates
from tandem.cost.recoding import coded_attention_cost
from tandem.cost.stage import (
    CostBreakdown,
    addition_cost,
    append_cost,
    attention_cost,
    cost_of,
    merge_cost,
    stage_cost,
)
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind, Part, ProgramOp
from tandem.runtime.paced.costs import PacedLane
from tandem.runtime.paced.host_stages import host_stages
from tandem.runtime.paced.ledger import HostTask
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.dtype import DType
from tandem.spec.hardware import HostFacts
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


class HostTruth:
    """Durations of appends, attention, layers and MLPs on the CPU in virtual time.

    Args:
        page: of KV, in both tiers.
        host: as it truly is; its memory is read, and its cores compute, at these rates.
        change: jitter, and how far codes are from what the planner takes them to cost.
        cpu_columns: of MLPs that are computed on both sides, the CPU's.
        types: what is in few bits; None: nothing.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        host: HostFacts,
        change: Perturbation,
        cpu_columns: int = 0,
        types: PacedTypes | None = None,
    ) -> None:
        self._rates = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._types = types or PacedTypes.plain(page.float_type)
        self._model, self._dtype = model, self._types.precision.activations
        kept = page.on(Tier.HOST)
        self._kept_token_bytes = kept.bytes_per_block_layer / kept.block_size
        self._has_codes = bool(kept.code_bits)
        codes = random.Random(f"{change.seed} host codes").uniform(-change.terms, change.terms)
        self._code_rates = replace(self._rates, flops_per_s=self._rates.flops_per_s * (1 + codes))
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
        rates = self._stage_rates
        if op.part is Part.RESIDUAL:
            return addition_cost(self._model, tokens, DType.FLOAT32, rates)
        stage = host_stages(operations)[op.part].of(operations)
        if op.layer in self._types.layers:
            precision = self._types.of_layer(op.layer)
            whole = PreciseStage(stage, precision, COMPILED).cost(tokens, rates)
        else:
            whole = stage_cost(stage, tokens, self._dtype, rates)
        return whole.part(self._cpu_share) if op.part is Part.COLUMNS else whole

    def _append(self, lane: PacedLane) -> CostBreakdown:
        tokens = lane.work.num_appended(Tier.HOST)
        if self._has_codes:
            brought = 2 * self._model.kv_size * self._dtype.size_bytes
            return cost_of(0, tokens * (brought + self._kept_token_bytes), 1, self._rates)
        return append_cost(self._model, tokens, self._dtype, self._rates)

    def _attention(self, lane: PacedLane, layer: int) -> CostBreakdown:
        work, operations = lane.work.attention(Tier.HOST, layer), self._operations[layer]
        if self._has_codes:
            size = self._kept_token_bytes
            return coded_attention_cost(operations, work, size, self._code_rates)
        return attention_cost(operations, work, self._dtype, self._rates)

"""What passing keys and values of blocks truly cost on the emulated accelerator (ADR 0025)."""

from collections.abc import Iterator, Sequence

from tandem.cost.lane_work import LaneWork
from tandem.cost.passing_work import PassingWork
from tandem.cost.recoding import quantized_cost
from tandem.cost.stage import (
    CostBreakdown,
    append_cost,
    attention_cost,
    merge_cost,
)
from tandem.memory.page import KVPageSpec
from tandem.plan.block_shape import MADE_AT_ONCE
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.runtime.paced.perturbed_rates import PerturbedRates
from tandem.runtime.paced.stage_truth import StageTruth
from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import keys_values
from tandem.spec.tier import Tier

PASSING_COPIES = (Part.CACHE, Part.PREFIX)


class PassingTruth:
    """Costs of what is done beside a sweep's operations; each is a kernel, or a copy, of its own.

    The executor copies runs of blocks that follow each other in both memories, so each run costs
    the set-up of a copy. Where the host holds KV in few bits, so do slots: a kernel of its own
    quantizes what is appended to them; what is attended to is dequantized in registers, and takes
    what it would in the activations' type.

    Args:
        page: of both tiers. dtype: of the maths.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        dtype: DType,
        true: PerturbedRates,
        stages: StageTruth,
    ) -> None:
        self._model, self._dtype = model, dtype
        self._rates, self._links, self._stages = true.device, true.links, stages
        self._operations = [layer_operations(model, i) for i in range(model.num_layers)]
        self._token_bytes = 2 * model.kv_size * dtype.size_bytes
        self._kept = page.on(Tier.HOST)
        self._recodes = bool(self._kept.code_bits)
        self._entry_bytes = model.hidden_size * self._dtype.size_bytes

    def copied_bytes(self, op: ProgramOp, passing: Sequence[PassingWork]) -> float:
        """Of one layer: blocks, new tokens, or activations."""
        if op.part is Part.PREFIX:
            return sum(work.entries for work in passing) * self._entry_bytes
        return sum(self._cache_bytes(op, work) for work in passing)

    def _cache_bytes(self, op: ProgramOp, work: PassingWork) -> float:
        """New tokens go as they were computed; whatever is in pages as it lies there."""
        if op.queue is Queue.D2H and work.stored is not None:
            return work.stored * self._token_bytes
        return work.blocks * self._kept.bytes_per_block_layer

    def copy(self, op: ProgramOp, passing: Sequence[PassingWork]) -> CostBreakdown:
        """A CACHE or PREFIX copy."""
        link = self._links[op.queue]
        copies = sum(_copies(op, work) for work in passing)
        moved_s = self.copied_bytes(op, passing) / link.bytes_per_s
        return CostBreakdown(memory_s=moved_s, launch_s=copies * link.latency_s)

    def computed(
        self, op: ProgramOp, lanes: Sequence[LaneWork], passing: Sequence[PassingWork]
    ) -> list[CostBreakdown]:
        """What an operation of the accelerator does for passing parts, in order."""
        if op.part is Part.RECOMPUTE:
            return [cost for work in passing for cost in self._recomputed(op, work.entries)]
        if op.kind is OpKind.APPEND:
            return [self._appended(work.appended) for work in passing]
        if op.kind is OpKind.ATTEND:
            return [cost for work in passing for cost in self._attended(op.layer, work)]
        if op.part is Part.POST and any(work.stored is None for work in passing):
            mixed = sum(lane.tokens for lane in lanes if lane.num_appended(Tier.DEVICE))
            return [merge_cost(self._model, mixed, self._rates)] if mixed else []
        return []

    def _appended(self, tokens: int) -> CostBreakdown:
        """To a slot."""
        if not self._recodes:
            return self._append(tokens)
        return quantized_cost(self._recoded_bytes(tokens), self._rates)

    def _attended(self, layer: int, work: PassingWork) -> Iterator[CostBreakdown]:
        for part in work.parts(layer):
            yield attention_cost(self._operations[layer], part, self._dtype, self._rates)

    def _recoded_bytes(self, tokens: int) -> float:
        """Codes, and what they stand for."""
        codes = self._kept.bytes_per_block_layer / self._kept.block_size
        return tokens * (codes + self._token_bytes)

    def _append(self, tokens: int) -> CostBreakdown:
        return append_cost(self._model, tokens, self._dtype, self._rates)

    def _recomputed(self, op: ProgramOp, tokens: int) -> Iterator[CostBreakdown]:
        """Keys and values of prefixes, so many at once, by whole tiles; they go into pages."""
        operations = keys_values(self._operations[op.layer])
        for first in range(0, tokens, MADE_AT_ONCE):
            count = min(MADE_AT_ONCE, tokens - first)
            yield self._stages.cost(op.layer, operations, count)
            yield self._append(count)


def _copies(op: ProgramOp, work: PassingWork) -> int:
    if op.part is Part.PREFIX:
        return work.entry_copies
    return 1 if op.queue is Queue.D2H and work.stored is not None else work.copies

"""What operations truly cost on the emulated accelerator.

The planner never reads this; see `perturbed_rates`.
"""

from collections.abc import Collection, Mapping, Sequence

from tandem.cost.expert_use import ExpertUse
from tandem.cost.lane_work import LaneWork
from tandem.cost.passing_work import PassingWork
from tandem.cost.quantized import COMPILED, PreciseStage
from tandem.cost.rates import LinkRates
from tandem.cost.recoding import coded_attention_cost, quantized_cost
from tandem.cost.split_mixture import MixtureBytes, MixturePart, choice_bytes
from tandem.cost.stage import (
    AttentionWork,
    CostBreakdown,
    addition_bytes,
    addition_cost,
    append_cost,
    attention_cost,
    copy_cost,
    embedding_cost,
    head_cost,
    merge_cost,
    partial_bytes,
    sampling_cost,
    stage_bytes,
    staged_qkv_bytes,
    token_bytes,
)
from tandem.cost.weight_parts import weight_part_bytes
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind, PageTransfer, Part, ProgramOp, Queue
from tandem.plan.weights import EmbeddingHome
from tandem.runtime.paced.host_stages import host_stages
from tandem.runtime.paced.passing_truth import PASSING_COPIES, PassingTruth
from tandem.runtime.paced.perturbed_rates import Perturbation, PerturbedRates
from tandem.runtime.paced.stage_truth import StageTruth
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import default_stages, split_experts, split_post
from tandem.spec.parameters import (
    layer_matrix_bytes,
    mlp_matrix_bytes,
)
from tandem.spec.tier import Tier


class PacedTruth:
    """Durations of device operations.

    Args:
        page: of the KV cache; floats on the accelerator are of the type of the maths.
        experts: by layer, those on the accelerator where others are in host memory.
        use: of experts; None: uniform.
        embedding: where token embeddings lie.
        cpu_columns: of MLPs that are computed on both sides, the CPU's; cpu_attention_maps: those
            of the same layers are the CPU's, too.
        mlps_apart: layers of which nothing but the MLP comes.
        types: what is in few bits; None: nothing.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        hardware: HardwareSpec,
        perturbation: Perturbation | None = None,
        experts: Mapping[int, tuple[int, ...]] | None = None,
        use: ExpertUse | None = None,
        embedding: EmbeddingHome = "resident",
        cpu_columns: int = 0,
        mlps_apart: Collection[int] = (),
        types: PacedTypes | None = None,
        *,
        cpu_attention_maps: bool = False,
    ) -> None:
        types = types or PacedTypes.plain(page.float_type)
        self._types, self._dtype = types, types.precision.activations
        self._model, self._page = model, page
        self._change = perturbation or Perturbation()
        self._true = PerturbedRates(hardware, self._dtype, self._change)
        self._rates, self._links = self._true.device, self._true.links
        streamable = next(
            i for i in model.distinct_layers if model.routed_experts(i) == model.experts
        )
        # few bits are of what comes, or of all layers
        precision = types.precision
        self._layer_bytes: int = layer_matrix_bytes(model, precision, streamable)
        self._mlp_bytes: int = mlp_matrix_bytes(model, precision, streamable)
        self._part_bytes = weight_part_bytes(model, precision, streamable)
        self._left_bytes: dict[int, int] = {}
        if experts:
            mixture = MixtureBytes.of(model, precision)
            self._left_bytes = {layer: mixture.left(len(ids)) for layer, ids in experts.items()}
        self._kept_token_bytes = page.bytes_per_block_layer / page.block_size
        self._mlps_apart = frozenset(mlps_apart)
        self._cpu_share = cpu_columns / model.intermediate_size
        maps = self._layer_bytes - self._mlp_bytes if cpu_attention_maps else 0
        self._left_out_bytes: int = round(self._cpu_share * self._mlp_bytes) + maps
        self._disk_bytes_per_s = hardware.host.disk_bytes_per_s
        self._looked_up_over = self._links[Queue.H2D] if embedding == "host" else None
        self._experts, self._use = experts or {}, use or ExpertUse.uniform(model)
        self._operations = [layer_operations(model, i) for i in range(model.num_layers)]
        self._stages = StageTruth(types, hardware.accelerator, self._true, self._change)
        self._passing = PassingTruth(model, page, self._dtype, self._true, self._stages)

    def comes_in_part(self, layer: int) -> bool:
        """Whether nothing but its MLP comes over the link."""
        return layer in self._mlps_apart

    def link(self, queue: Queue) -> LinkRates:
        """Rates of one direction of the link."""
        return self._links[queue]

    def compute_s(
        self, op: ProgramOp, lanes: Sequence[LaneWork], passing: Sequence[PassingWork] = ()
    ) -> float:
        """An operation of a forward program, on the lanes that take part.

        Args:
            passing: their parts that only blocks of batches have.
        """
        if op.part in PASSING_COPIES:
            return self._true.duration_s(self._passing.copy(op, passing))
        if op.kind is OpKind.COPY:
            return self._true.duration_s(
                copy_cost(self.staged_bytes(op, lanes), self._links[op.queue])
            )
        parts = self._passing.computed(op, lanes, passing)
        return sum(map(self._true.duration_s, (*self._staying(op, lanes, passing), *parts)))

    def _staying(
        self, op: ProgramOp, lanes: Sequence[LaneWork], passing: Sequence[PassingWork]
    ) -> tuple[CostBreakdown, ...]:
        """What does not pass; where all of an attention does, there is no kernel for the rest."""
        if op.part is Part.RECOMPUTE:
            return ()
        if op.kind in (OpKind.ATTEND, OpKind.APPEND) and passing:
            stays = any(lane.num_appended(Tier.DEVICE) for lane in lanes)
            return (self._accelerator_cost(op, lanes),) if stays else ()
        return (self._accelerator_cost(op, lanes),)

    def passing_bytes(self, op: ProgramOp, passing: Sequence[PassingWork]) -> float:
        """What a copy of passing keys, values or activations moves."""
        return self._passing.copied_bytes(op, passing)

    def sample_s(self, op: ProgramOp, rows: int) -> float:
        """An operation of a sampling program."""
        if op.kind is OpKind.COPY:
            return self._true.duration_s(copy_cost(token_bytes(rows), self._links[op.queue]))
        return self._true.duration_s(sampling_cost(self._model, rows, self._rates))

    def transfer_s(self, op: ProgramOp, transfer: PageTransfer) -> float:
        """A copy of whole KV blocks."""
        size = len(transfer.source_blocks) * self._page.bytes_per_block
        return self._true.duration_s(copy_cost(size, self._links[op.queue]))

    def weight_bytes(self, op: ProgramOp) -> int:
        """What a load or a read brings: a layer's weights, those that a stage reads, or its MLP's
        but for what stays.
        """
        if op.part is Part.CPU_COLUMNS:
            return self._left_out_bytes
        if op.part is Part.COLUMNS:
            mlp_alone = op.layer in self._mlps_apart
            return (self._mlp_bytes if mlp_alone else self._layer_bytes) - self._left_out_bytes
        if op.part is Part.MLP:
            return self._left_bytes.get(op.layer, self._mlp_bytes)
        return self._part_bytes.get(op.part, self._layer_bytes)

    def load_s(self, op: ProgramOp) -> float:
        """One streamed layer's weights, or its MLP's, on a link of its own."""
        return self._true.duration_s(copy_cost(self.weight_bytes(op), self._links[Queue.WEIGHTS]))

    def read_s(self, op: ProgramOp) -> float:
        """One layer's weights from disk into host memory."""
        assert self._disk_bytes_per_s is not None
        return self._true.duration_s(
            CostBreakdown(memory_s=self.weight_bytes(op) / self._disk_bytes_per_s)
        )

    def _accelerator_cost(self, op: ProgramOp, lanes: Sequence[LaneWork]) -> CostBreakdown:
        model, dtype, rates = self._model, self._dtype, self._rates
        tokens = sum(lane.tokens for lane in lanes)
        if op.part is Part.EMBED:
            return embedding_cost(model, tokens, dtype, rates, self._looked_up_over)
        if op.part is Part.HEAD:
            return head_cost(model, sum(lane.logits for lane in lanes), dtype, rates)
        if op.part is Part.RESIDUAL:
            return CostBreakdown()  # a pointer changes hands
        if op.kind is OpKind.STAGE:
            return self._stage(op, tokens)
        if op.kind is OpKind.APPEND:
            appended = sum(lane.appended[Tier.DEVICE] for lane in lanes)
            return self._append(appended)
        if op.kind is OpKind.ATTEND:
            (lane,) = lanes
            return self._attention(op.layer, lane.attention(Tier.DEVICE, op.layer))
        if op.kind is OpKind.MERGE:
            return merge_cost(model, tokens, rates)
        raise ValueError(f"the accelerator does not execute {op.kind} {op.part}")

    def _append(self, tokens: int) -> CostBreakdown:
        """To pages, in few bits by a kernel that quantizes."""
        if not self._page.code_bits:
            return append_cost(self._model, tokens, self._dtype, self._rates)
        made = 2 * self._model.kv_size * self._dtype.size_bytes
        return quantized_cost(tokens * (self._kept_token_bytes + made), self._rates)

    def _attention(self, layer: int, work: AttentionWork) -> CostBreakdown:
        """Over pages, of which codes become floats in registers."""
        operations = self._operations[layer]
        if not self._page.code_bits:
            return attention_cost(operations, work, self._dtype, self._rates)
        return coded_attention_cost(
            operations, work, self._kept_token_bytes, self._rates, code_flops=0.0
        )

    def _stage(self, op: ProgramOp, tokens: int) -> CostBreakdown:
        if op.part is Part.EXPERTS:
            return self._experts_cost(op.layer, tokens)
        operations = self._operations[op.layer]
        pre, _, post = default_stages(operations)
        stages = {Part.PRE: pre, Part.POST: post, Part.OUTPUT: split_post(operations).output}
        if op.part is Part.COLUMNS:
            mlp = split_post(operations).mlp.of(operations)
            whole = self._stages.cost(op.layer, mlp, tokens)
            added = addition_cost(self._model, tokens, self._dtype, self._rates)
            return whole.part(1 - self._cpu_share).plus(added)
        if op.part is Part.ROUTE:
            stages[Part.ROUTE] = split_experts(operations).output
        return self._stages.cost(op.layer, stages[op.part].of(operations), tokens)

    def _experts_cost(self, layer: int, tokens: int) -> CostBreakdown:
        """Of those that are here: memory by the tokens, compute by whole tiles of them."""
        here, whole = self._experts[layer], self._change.whole_tiles(tokens)
        cost, tiled = (
            MixturePart(self._model, layer, here, self._use, count).cost(self._dtype, self._rates)
            for count in (tokens, whole)
        )
        return cost._replace(compute_s=tiled.compute_s)

    def host_stage_bytes(self, op: ProgramOp, tokens: int) -> float:
        """What a stage of the CPU's reads; 0 where it has a part of a mixture only, whose bytes
        are not counted.
        """
        if op.layer in self._experts:
            return 0.0
        operations = self._operations[op.layer]
        if op.part is Part.RESIDUAL:
            return addition_bytes(self._model, tokens, DType.FLOAT32)
        stage = host_stages(operations)[op.part].of(operations)
        size = stage_bytes(stage, tokens, self._dtype)
        if op.layer in self._types.layers:
            precision = self._types.of_layer(op.layer)
            size = PreciseStage(stage, precision, COMPILED).read_bytes(tokens)
        return size * self._cpu_share if op.part is Part.COLUMNS else size

    def staged_bytes(self, op: ProgramOp, lanes: Sequence[LaneWork]) -> int:
        """Activations that a copy brings to the other side."""
        tokens = sum(lane.tokens for lane in lanes)
        if op.part in (Part.RESIDUAL, Part.ROUTE):
            residual = tokens * self._model.hidden_size * self._dtype.size_bytes
            return residual + (choice_bytes(self._model, tokens) if op.part is Part.ROUTE else 0)
        if op.part is Part.QKV and op.queue is Queue.H2D:
            return staged_qkv_bytes(self._model, tokens, tokens, self._dtype)
        if op.part is Part.PARTIAL and op.queue is Queue.D2H:
            found = sum(lane.attention(Tier.DEVICE, op.layer).tokens for lane in lanes)
            return partial_bytes(self._model, found)
        queries = sum(lane.attention(Tier.HOST, op.layer).tokens for lane in lanes)
        if op.part is Part.QKV:
            appended = sum(lane.appended[Tier.HOST] for lane in lanes)
            return staged_qkv_bytes(self._model, queries, appended, self._dtype)
        return partial_bytes(self._model, queries)

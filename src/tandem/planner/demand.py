"""What operations ask of the hardware: time alone on it, and shares of what is shared meanwhile."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tandem.cost.quantized import COMPILED, PreciseStage, gpu_kernels
from tandem.cost.rates import DeviceRates, accelerator_rates, d2h_rates, h2d_rates
from tandem.cost.recoding import CPU_CODE_FLOPS
from tandem.cost.split_mixture import MixtureBytes, choice_bytes
from tandem.cost.stage import (
    AttentionWork,
    CostBreakdown,
    addition_cost,
    append_cost,
    copy_cost,
    cost_of,
    embedding_cost,
    head_cost,
    merge_cost,
    partial_bytes,
    sampling_cost,
    staged_qkv_bytes,
    token_bytes,
)
from tandem.cost.unlike_rows import UnlikeRows, least_stage
from tandem.cost.varying_rows import VaryingRows
from tandem.cost.weight_parts import weight_part_bytes
from tandem.memory.page import KVPageSpec
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.cpu_stages import CpuStages
from tandem.planner.load import LaneLoad, Load
from tandem.planner.question import Question
from tandem.profiling.shared_memory import SharedMemory
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import Operation, default_stages, split_experts, split_post
from tandem.spec.parameters import (
    layer_matrix_bytes,
    mlp_matrix_bytes,
    movable_layer,
)
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.planner.measured.attention import MeasuredAttention
    from tandem.planner.measured.card import MeasuredCard
    from tandem.planner.measured.host import MeasuredHost

_FP32_BYTES = 4


class Demand(NamedTuple):
    """Of one operation.

    Attributes:
        alone_s: duration if nothing else runs.
        dram_bytes_per_s: of the host's memory, while it runs at full speed; where contention was
            measured, what that costs others (`SharedMemory`).
        link_share: of its direction of the link, likewise; at most 1.
    """

    alone_s: float
    dram_bytes_per_s: float = 0.0
    link_share: float = 0.0


class Demands:
    """Prices operations of programs by what was measured, all else by the roofline of `cost/`.

    Attributes:
        measured, card: times on the CPU and on the accelerator; None: they follow rates.

    Args:
        counted: lanes have the rows of a single step, not those of many in the mean, so that the
            tiles that they fill are known however often requests end.
    """

    def __init__(self, question: Question, page: KVPageSpec, *, counted: bool = False) -> None:
        hardware, model = question.hardware, question.model
        self._model, self._dtype = model, question.precision.activations
        self._windows = model.layer_windows
        self._precision = question.precision
        self._device = accelerator_rates(hardware, self._dtype)
        self._filled = self._device  # of sweeps whose tokens are known
        if not counted:
            # of more, one ends in each sweep or several do, and places are empty for some sweeps
            rows = question.lengths.decode_sweeps
            self._device = replace(self._device, counted_rows=rows)
        host = hardware.host
        self._host = DeviceRates(host.memory_bandwidth_bytes_per_s, host.flops_per_s, 0.0)
        self._links = {
            Queue.H2D: h2d_rates(hardware),
            Queue.WEIGHTS: h2d_rates(hardware),
            Queue.D2H: d2h_rates(hardware),
        }
        movable, self._dense = movable_layer(model), frozenset(model.dense_layers)
        self._load_bytes: int = layer_matrix_bytes(model, question.precision, movable)
        self._mlp_load_bytes: int = mlp_matrix_bytes(model, question.precision, movable)
        self._part_bytes = weight_part_bytes(model, question.precision, movable)
        self._mixture: MixtureBytes | None = None
        if model.experts is not None:
            self._mixture = MixtureBytes.of(model, question.precision)
        self._disk_bytes_per_s: float | None = host.disk_bytes_per_s
        self._pool_bytes_per_s: float = host.pool_bytes_per_s
        self._block_bytes = page.bytes_per_block
        self._kv_token_bytes = page.bytes_per_block_layer / page.block_size
        operations = layer_operations(model, movable)
        attend = default_stages(operations).attend
        self._stages = self._dense_stages = _stages(operations)
        if self._dense:
            self._dense_stages = _stages(layer_operations(model, min(self._dense)))
        kernels = gpu_kernels(hardware.accelerator, self._dtype)
        if question.host_only:
            kernels = COMPILED
        self._summed = {
            (part, dense): PreciseStage(stage, self._precision, kernels)
            for dense, stages in ((False, self._stages), (True, self._dense_stages))
            for part, stage in stages.items()
        }
        self._stage_costs: dict[
            tuple[Part, int, bool, bool, VaryingRows | None], CostBreakdown
        ] = {}
        # of what hangs on one number alone, which many lanes have
        self._costs: dict[tuple[OpKind, Part, int], CostBreakdown] = {}
        self._host_appends: dict[int, Demand] = {}
        self._copies: dict[tuple[Queue, float], Demand] = {}
        self._pair_flops = sum(op.flops_per_pair for op in attend.of(operations))
        self._cpu_key_flops = CPU_CODE_FLOPS * 2 * model.kv_size if page.code_bits else 0.0
        self.measured: MeasuredHost | None = _measured_host(question, page, self._pair_flops)
        self.card: MeasuredCard | None = _measured_card(question, self._pair_flops, self._device)
        self._card_stages: dict[tuple[Part, int, bool], float] = {}
        self._shared = SharedMemory(host.pool_bytes_per_s)
        if self.measured is not None:
            self._shared = self.measured.shared
        self._host_only = question.host_only
        self._cpu_stages = CpuStages(model, self._stages, question.precision, host, self.measured)

    def of(
        self, op: ProgramOp, lanes: Sequence[Load], *, hosted: bool = False, experts: int = 0
    ) -> Demand:
        """An operation on the lanes that take part.

        Args:
            hosted: token embeddings are in host memory.
            experts: of each mixture that is elsewhere, those on the accelerator.
        """
        if hosted and op.part is Part.EMBED:
            return self._from_host(_tokens(lanes))
        if op.queue is Queue.CPU:
            return self._on_cpu(op, lanes, experts)
        if op.queue is Queue.DISK:
            assert self._disk_bytes_per_s is not None, "the disk's rate is not known"
            size = self._copied_bytes(op, lanes, experts)
            drawn = self._shared.disk_charge * self._disk_bytes_per_s
            return Demand(size / self._disk_bytes_per_s, drawn)
        if op.queue is Queue.ACCEL:
            if (
                self.card is not None
                and (found_s := self._on_card(op, lanes, self.card)) is not None
            ):
                return Demand(found_s * (self._share(experts) if op.part is Part.EXPERTS else 1))
            cost = self._on_accelerator(op, lanes)
            if op.part is Part.EXPERTS:
                cost = cost.part(self._share(experts))
            if not self._host_only:
                return Demand(cost.total_s)
            return self._on_host_alone(op, lanes, cost)
        return self.copy(op.queue, self._copied_bytes(op, lanes, experts))

    def of_columns(
        self, op: ProgramOp, tokens: int, share: float, *, whole: bool, maps: bool = False
    ) -> Demand:
        """Either side's part of an MLP divided by columns, the accelerator's with the addition; or
        a load of all of a layer but what the CPU has, or of that.

        Args:
            share: of the columns, the CPU's. whole: the rest of the layer comes, too; maps: but for
                attention's maps, which are the CPU's.
        """
        if op.kind is OpKind.LOAD:
            left_out, size = share * self._mlp_load_bytes, self._mlp_load_bytes
            left_out += self._load_bytes - size if maps else 0
            if op.part is Part.CPU_COLUMNS:
                return self.copy(op.queue, left_out)
            return self.copy(op.queue, (self._load_bytes if whole else size) - left_out)
        if op.queue is Queue.CPU:
            return self._cpu_stage(Part.MLP, tokens, share)
        added_s = addition_cost(self._model, tokens, self._dtype, self._device).total_s
        if self.card is not None:
            return Demand((1 - share) * self.card.stage_s(self._stages[Part.MLP], tokens) + added_s)
        cost = self._summed[Part.MLP, False].cost(tokens, self._device)
        return Demand(cost.part(1 - share).total_s + added_s)

    def least_stage(self, op: ProgramOp, rows: UnlikeRows) -> Demand | None:
        """A stage in passes of unlike numbers of tokens, in the mean; None: it takes no less than
        with alike ones, as far as is known.
        """
        dense = op.layer in self._dense
        if op.kind is not OpKind.STAGE or (op.part, dense) not in self._summed:
            return None
        if op.queue is Queue.CPU:
            found = self._cpu_stages.least(op.part, rows)
            return None if found is None else self._while_multiplying(*found)
        stage = self._summed[op.part, dense]
        if self.card is not None or self._host_only or stage.is_convex:
            return None
        return Demand(least_stage(stage, rows, self._device).total_s)

    def _cpu_stage(self, part: Part, tokens: int, share: float) -> Demand:
        return self._while_multiplying(*self._cpu_stages.stage(part, tokens, share))

    def _while_multiplying(self, alone_s: float, size: float) -> Demand:
        return Demand(alone_s, max(size / alone_s, self._shared.product_bytes_per_s))

    def _share(self, experts: int) -> float:
        """Of a mixture's work, if all experts are used alike."""
        assert self._mixture is not None, "the model has no experts"
        return experts / self._mixture.count

    def mlp_token_s(self, experts: int) -> float:
        """As `token_s`, from the end of attention on, of an MLP that the CPU computes, or of a
        mixture of which it computes all but these experts.
        """
        if not experts:
            return self.token_s([Part.OUTPUT]) + self.token_s([Part.MLP], on_cpu=True)
        share = self._share(experts)
        here_s, there_s = (self.token_s([Part.EXPERTS], on_cpu=where) for where in (False, True))
        return self.token_s([Part.ROUTE]) + max(share * here_s, (1 - share) * there_s)

    def token_s(self, parts: Sequence[Part], *, dense: bool = False, on_cpu: bool = False) -> float:
        """Arithmetic of one token in some stages of a layer: each takes no less. 0 where times are
        measured.

        Args:
            dense: of a model with experts, in a layer without.
        """
        if self.measured is not None and (on_cpu or self._host_only):
            return 0.0
        rates = self._host if on_cpu else self._device
        flops = sum(self._summed[part, dense].token_flops() for part in parts)
        return flops / rates.flops_per_s

    def of_blocks(self, queue: Queue, blocks: int) -> Demand:
        """A copy of whole KV blocks, of all layers."""
        return self.copy(queue, blocks * self._block_bytes)

    def copy(self, queue: Queue, size: float) -> Demand:
        """A copy of so many bytes over the link."""
        found = self._copies.get((queue, size))
        if found is None:
            link = self._links[queue]
            alone_s = copy_cost(size, link).total_s
            rate = size / alone_s
            found = Demand(alone_s, self._shared.link_charge * rate, rate / link.bytes_per_s)
            self._copies[queue, size] = found
        return found

    def _from_host(self, tokens: int) -> Demand:
        """Rows of the embeddings, which the accelerator reads over the link. They are few beside
        what is streamed, so that they are not counted as a share of it.
        """
        link = self._links[Queue.H2D]
        return Demand(embedding_cost(self._model, tokens, self._dtype, self._device, link).total_s)

    def _on_host_alone(self, op: ProgramOp, lanes: Sequence[Load], cost: CostBreakdown) -> Demand:
        """What it reads, reads from disk share the memory with."""
        alone_s = cost.total_s
        if self.measured is not None:
            alone_s = self._on_measured_host(op, lanes, self.measured)
        if not alone_s:
            return Demand(0.0)
        rate = cost.memory_s * self._device.bytes_per_s / alone_s
        if op.kind is OpKind.STAGE:
            rate = max(rate, self._shared.product_bytes_per_s)
        return Demand(alone_s, min(rate, self._pool_bytes_per_s))

    def _on_measured_host(
        self, op: ProgramOp, lanes: Sequence[Load], host: "MeasuredHost"
    ) -> float:
        """The host is the device; what was not measured is priced by its read rate."""
        if op.part is Part.HEAD:
            return host.head_s(_logits(lanes))
        if op.kind is OpKind.STAGE and op.part in self._stages:
            tokens = _tokens(lanes)
            stages = self._dense_stages if op.layer in self._dense else self._stages
            return host.stage_s(stages[op.part], tokens)
        if op.kind is OpKind.ATTEND:
            window = self._windows[op.layer]
            return sum(_measured_s(host, lane, Tier.DEVICE, window) for lane in lanes)
        return self._on_accelerator(op, lanes).memory_s

    def _on_card(self, op: ProgramOp, lanes: Sequence[Load], card: "MeasuredCard") -> float | None:
        """Seconds as measured; None: it was not."""
        if op.kind is OpKind.ATTEND:
            window = self._windows[op.layer]
            return sum(_measured_s(card, lane, Tier.DEVICE, window) for lane in lanes)
        if op.kind is OpKind.APPEND:
            return card.append_s(sum(lane.num_appended(Tier.DEVICE) for lane in lanes))
        if op.part is Part.HEAD:
            return card.head_s(_logits(lanes))
        if op.kind is not OpKind.STAGE or op.part not in self._stages:
            return None
        dense, tokens = op.layer in self._dense, _tokens(lanes)
        key = (op.part, tokens, dense)
        if key not in self._card_stages:
            stages = self._dense_stages if dense else self._stages
            self._card_stages[key] = card.stage_s(stages[op.part], tokens)
        return self._card_stages[key]

    def _on_accelerator(self, op: ProgramOp, lanes: Sequence[Load]) -> CostBreakdown:
        kind, part = op.kind, op.part
        if kind is OpKind.ATTEND:
            return self._attention(lanes, Tier.DEVICE, op.layer, self._device)
        if kind is OpKind.APPEND:
            number = _appended(lanes, Tier.DEVICE)
        elif kind is OpKind.SAMPLE or part is Part.HEAD:
            number = _logits(lanes)
        elif kind is OpKind.STAGE and part not in (Part.EMBED, Part.RESIDUAL):
            return self._stage(op, _tokens(lanes), lanes)
        else:
            number = _tokens(lanes)
        key = kind, part, number
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._cost(kind, part, number)
        return found

    def _cost(self, kind: OpKind, part: Part, number: int) -> CostBreakdown:
        """On the accelerator, of so many tokens, or rows of logits."""
        model, dtype, rates = self._model, self._dtype, self._device
        if kind is OpKind.APPEND:
            return append_cost(model, number, dtype, rates)
        if kind is OpKind.SAMPLE:
            return sampling_cost(model, number, rates)
        if part is Part.HEAD:
            return head_cost(model, number, self._precision.weights, rates)
        if part is Part.RESIDUAL:
            return CostBreakdown()  # it is there already
        if part is Part.EMBED:
            return embedding_cost(model, number, dtype, rates)
        assert kind is OpKind.MERGE, (kind, part)
        return merge_cost(model, number, rates)

    def _stage(self, op: ProgramOp, tokens: int, lanes: Sequence[Load]) -> CostBreakdown:
        dense, filled = op.layer in self._dense, any(map(_is_filled, lanes))
        varying = None
        if tokens > self._device.counted_rows and not filled:
            varying = _varying(lanes)
        key = (op.part, tokens, dense, filled, varying)
        if key not in self._stage_costs:
            rates = self._filled if filled else self._device
            self._stage_costs[key] = self._summed[op.part, dense].cost(tokens, rates, varying)
        return self._stage_costs[key]

    def _attention(
        self, lanes: Sequence[Load], tier: Tier, layer: int, rates: DeviceRates
    ) -> CostBreakdown:
        window = self._windows[layer]
        works = [lane.seen(tier, window) for lane in lanes]
        flops = self._pair_flops * sum([work.pairs for work in works])
        if tier is Tier.HOST or self._host_only:
            flops += self._cpu_key_flops * sum([work.keys for work in works])
        return cost_of(flops, sum(map(self._attention_bytes, works)), 1, rates)

    def _attention_bytes(self, work: AttentionWork) -> float:
        return work.keys * self._kv_token_bytes + work.tokens * self._model.q_size * _FP32_BYTES

    def _on_cpu(self, op: ProgramOp, lanes: Sequence[Load], experts: int) -> Demand:
        if op.kind in (OpKind.STAGE, OpKind.MERGE):
            tokens = _tokens(lanes)
            if op.kind is OpKind.MERGE:
                alone_s, size = self._cpu_stages.merge(tokens)
                return Demand(alone_s, size / alone_s)
            if op.part is Part.RESIDUAL:
                alone_s, size = self._cpu_stages.addition(tokens)
                return Demand(alone_s, size / alone_s)
            part, share = op.part, 1.0
            if experts and part is Part.MLP:
                part, share = Part.EXPERTS, 1 - self._share(experts)
            return self._cpu_stage(part, tokens, share)
        if op.kind is OpKind.APPEND:
            appended = _appended(lanes, Tier.HOST)
            found = self._host_appends.get(appended)
            if found is None:
                found = self._host_appends[appended] = self._host_append(appended)
            return found
        assert op.kind is OpKind.ATTEND, op
        cost = self._attention(lanes, Tier.HOST, op.layer, self._host)
        alone_s = cost.total_s
        if self.measured is not None:
            window, host = self._windows[op.layer], self.measured
            alone_s = sum(_measured_s(host, lane, Tier.HOST, window) for lane in lanes)
        return _moving(cost.memory_s * self._host.bytes_per_s, alone_s)

    def _host_append(self, appended: int) -> Demand:
        size = 2 * self._kv_token_bytes * appended
        if self.measured is not None:
            return _moving(size, self.measured.append_s(size))
        cost = cost_of(0, size, 0, self._host)
        return _moving(cost.memory_s * self._host.bytes_per_s, cost.total_s)

    def _copied_bytes(self, op: ProgramOp, lanes: Sequence[Load], experts: int) -> float:
        if op.kind in (OpKind.LOAD, OpKind.READ):
            if op.part is not Part.MLP:
                return self._part_bytes.get(op.part, self._load_bytes)
            return self._mlp_load_bytes if not self._mixture else self._mixture.left(experts)
        if op.part is Part.TOKENS:
            return token_bytes(_logits(lanes))
        tokens = _tokens(lanes)
        if op.part in (Part.RESIDUAL, Part.ROUTE):
            residual = tokens * self._model.hidden_size * self._dtype.size_bytes
            return residual + (choice_bytes(self._model, tokens) if op.part is Part.ROUTE else 0)
        if op.part is Part.QKV and op.queue is Queue.H2D:
            return staged_qkv_bytes(self._model, tokens, tokens, self._dtype)
        tier = Tier.DEVICE if (op.part, op.queue) == (Part.PARTIAL, Queue.D2H) else Tier.HOST
        queries = _queries(lanes, tier)
        if op.part is Part.QKV:
            appended = _appended(lanes, Tier.HOST)
            return staged_qkv_bytes(self._model, queries, appended, self._dtype)
        assert op.part is Part.PARTIAL, op
        return partial_bytes(self._model, queries)


def _stages(operations: tuple[Operation, ...]) -> Mapping[Part, Sequence[Operation]]:
    """A layer's operations by the part of a program."""
    pre, _, post = default_stages(operations)
    cut = split_post(operations)
    stages = {Part.PRE: pre, Part.POST: post, Part.OUTPUT: cut.output, Part.MLP: cut.mlp}
    if any(op.experts is not None for op in operations):
        routed = split_experts(operations)
        stages |= {Part.ROUTE: routed.output, Part.EXPERTS: routed.mlp}
    return {part: stage.of(operations) for part, stage in stages.items()}


# what is measured takes as long to import as all else here, and few have it


def _measured_host(question: Question, page: KVPageSpec, pair_flops: int) -> "MeasuredHost | None":
    if question.measured is None:
        return None
    from tandem.planner.measured.host import MeasuredHost

    return MeasuredHost(question.measured, question.model, question.precision, page, pair_flops)


def _measured_card(
    question: Question, pair_flops: int, rates: DeviceRates
) -> "MeasuredCard | None":
    if question.measured_card is None:
        return None
    from tandem.planner.measured.card import MeasuredCard

    measured, precision = question.measured_card, question.precision
    return MeasuredCard(measured, question.model, precision, pair_flops, rates)


# mostly there is one lane, and tens of thousands are asked for


def _tokens(lanes: Sequence[Load]) -> int:
    return lanes[0].tokens if len(lanes) == 1 else sum(lane.tokens for lane in lanes)


def _logits(lanes: Sequence[Load]) -> int:
    return lanes[0].logits if len(lanes) == 1 else sum(lane.logits for lane in lanes)


def _appended(lanes: Sequence[Load], tier: Tier) -> int:
    if len(lanes) == 1:
        return lanes[0].num_appended(tier)
    return sum(lane.num_appended(tier) for lane in lanes)


def _queries(lanes: Sequence[Load], tier: Tier) -> int:
    if len(lanes) == 1:
        return lanes[0].num_queries(tier)
    return sum(lane.num_queries(tier) for lane in lanes)


def _moving(size: float, alone_s: float) -> Demand:
    """Of the host's memory, as much as it moves meanwhile."""
    return Demand(alone_s, size / alone_s) if alone_s else Demand(0.0)


def _is_filled(lane: Load) -> bool:
    return isinstance(lane, LaneLoad) and lane.filled


def _varying(lanes: Sequence[Load]) -> VaryingRows | None:
    """Rows of all lanes together; None: not of all of them it is said."""
    found = VaryingRows(0)
    for lane in lanes:
        if not isinstance(lane, LaneLoad) or lane.varying is None:
            return None
        found = found.plus(lane.varying)
    return found


def _measured_s(measured: "MeasuredAttention", lane: Load, tier: Tier, window: int) -> float:
    """Of work in means, or counted from a program's arrays."""
    if isinstance(lane, LaneLoad):
        return measured.attend_s(lane.device if tier is Tier.DEVICE else lane.host, window)
    return measured.counted_s(lane.seen(tier, window))

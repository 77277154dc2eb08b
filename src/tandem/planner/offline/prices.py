"""What the operations of a block's passes ask of the hardware."""

from collections.abc import Callable
from dataclasses import replace

from tandem.cost.quantized import PreciseStage, gpu_kernels
from tandem.cost.rates import accelerator_rates
from tandem.cost.recoding import quantized_cost
from tandem.cost.unlike_rows import UnlikeRows
from tandem.plan.block_shape import MADE_AT_ONCE, BlockShape
from tandem.plan.offline import QuantizedLayers
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.demand import Demand, Demands
from tandem.planner.load import LaneLoad, TierLoad
from tandem.planner.measured.card import measured_rates
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.precisions import Precisions
from tandem.planner.offline.prompt_sizes import PartSizes
from tandem.planner.offline.prompts import PromptLoad
from tandem.planner.question import Question
from tandem.spec.kv_type import CodeType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import keys_values

Price = Callable[[ProgramOp], Demand]


class BlockPrices:
    """Prices for one question.

    Args:
        at_mean: of passes in the mean, as long as sequences then are; else all are that long.
    """

    def __init__(
        self,
        question: Question,
        precisions: Precisions,
        footprint: BlockFootprint,
        *,
        at_mean: bool = True,
    ) -> None:
        self._at_mean = at_mean
        self._tiled = question
        # bounds are lines over tokens
        question = question.without_tiles()
        self._q, self._precisions, self._footprint = question, precisions, footprint
        self._rates = accelerator_rates(question.hardware, precisions.plain.activations)
        card, link = question.hardware.accelerator, question.hardware.link
        # a sequence's blocks are a copy of their own, which are launched ahead
        self._set_up_s = max(0.0, link.latency_s - card.launch_latency_s)
        self._windows = question.model.layer_windows
        self._made: dict[tuple[QuantizedLayers, bool, CodeType | None, bool], Demands] = {}
        self._recomputed = keys_values(layer_operations(question.model))
        self._dense = frozenset(question.model.dense_layers)
        self._known: dict[tuple[object, ...], Demand] = {}
        self._known_prompts: dict[tuple[object, ...], Demand] = {}
        self._known_least: dict[tuple[object, ...], Demand | None] = {}

    def decode(self, candidate: BlockCandidate) -> Price:
        """Of a pass that gives every sequence a token, with all places taken."""
        return self._decode(candidate, tiled=True)

    def least_decode(self, candidate: BlockCandidate) -> Price:
        """Likewise, if rows that do not fill their last tile cost nothing: linear in the shares."""
        return self._decode(candidate, tiled=False)

    def least_way(self, candidate: BlockCandidate) -> None:
        """Of a batch, as of all: they are alike."""

    def _decode(self, candidate: BlockCandidate, *, tiled: bool) -> Price:
        context = self._q.lengths.context_tokens
        there = candidate.resident_rows + candidate.streamed_rows
        lane = LaneLoad(
            TierLoad(there, context), TierLoad(candidate.cpu_rows, context), candidate.rows
        )
        if candidate.device_kv is None or not candidate.streamed_rows:
            return lambda op: self._decoded(candidate, op, lane, context, tiled=tiled)
        # what passes is priced as it is where nothing else is in few bits, as a kernel of its own
        passes = replace(candidate, resident_rows=0, device_kv=None)
        apart = [(passes, lane._replace(device=TierLoad(passes.streamed_rows, context)))]
        if candidate.resident_rows:
            stays = lane._replace(device=TierLoad(candidate.resident_rows, context))
            apart.append((candidate, stays))

        def price(op: ProgramOp) -> Demand:
            if op.kind is not OpKind.ATTEND or op.queue is not Queue.ACCEL:
                return self._decoded(candidate, op, lane, context, tiled=tiled)
            each = (self._decoded(one, op, load, context, tiled=tiled) for one, load in apart)
            return Demand(sum(demand.alone_s for demand in each))

        return price

    def prefill(self, candidate: BlockCandidate) -> Price:
        """Of the pass over all prompts, in parts as an engine cuts them."""
        parts = self._footprint.prompts.packed(candidate.rows)
        return lambda op: self._prefilled(candidate, op, parts, tiled=True)

    def least_prefill(self, candidate: BlockCandidate) -> Price:
        """Likewise, however they are cut, as far as a part's time is known to be convex in its
        tokens: not as measured, nor where few tokens are multiplied by codes and many are not. The
        tiles of prompts that are parts by themselves are known.
        """
        sizes, convex = self._footprint.prompts, self._q.measured_card is None
        convex &= candidate.quantized == "none"
        parts = sizes.least(candidate.rows) if convex else sizes.packed(candidate.rows)
        return lambda op: self._prefilled(candidate, op, parts, tiled=False)

    def least_stage(
        self, candidate: BlockCandidate, op: ProgramOp, rows: UnlikeRows
    ) -> Demand | None:
        """Of batches in passes with unlike numbers of sequences, in the mean; None: of alike ones.

        Args:
            rows: sequences.
        """
        demands = self._demands(candidate, op, tiled=False)
        key = (demands, op.kind, op.queue, op.part, op.layer in self._dense, rows)
        if key not in self._known_least:
            self._known_least[key] = demands.least_stage(op, rows)
        return self._known_least[key]

    def least_prompts_stage(
        self, candidate: BlockCandidate, op: ProgramOp, most_rows: int
    ) -> Demand | None:
        """Of a batch's prompts in parts of unlike sizes, however they are cut; None: it takes no
        less than `least_prefill` says.

        Args:
            most_rows: of any batch; those of a part are fewer in the mean.
        """
        demands, rows = self._demands(candidate, op, tiled=False), candidate.rows
        key = (demands, op.kind, op.queue, op.part, op.layer in self._dense, rows, most_rows)
        if key not in self._known_least:
            alone = self._demands(candidate, op, tiled=True)
            self._known_least[key] = self._least_parts((demands, alone), op, rows, most_rows)
        return self._known_least[key]

    def _least_parts(
        self, demands: tuple[Demands, Demands], op: ProgramOp, rows: int, most_rows: int
    ) -> Demand | None:
        """All parts of so many prompts.

        Args:
            demands: of parts, and of those of one prompt in any order.
        """
        sizes, alone_s = self._footprint.prompts, 0.0
        parts, most = sizes.least(rows), sizes.most_tokens(most_rows)
        if not parts.parts:
            return None
        for tokens, count in parts.parts:
            largest = max(tokens, most)
            of_parts = UnlikeRows(tokens, min(tokens, sizes.shortest), largest, largest)
            least = demands[0].least_stage(op, of_parts)
            if least is None:
                return None
            alone_s += count * least.alone_s
        whole = self._whole(rows)
        for tokens, count in parts.alone:
            alone_s += count * demands[1].of(op, [whole._replace(tokens=tokens)]).alone_s
        return Demand(alone_s * rows / parts.prompts)

    def kind_of(self, shape: BlockShape) -> Callable[[ProgramOp], tuple[int, bool]]:
        """What prices depend on of an operation's layer: its window, and how its weights lie."""
        streamed = frozenset(shape.weights.layers)
        return lambda op: (self._windows[op.layer], op.layer in streamed)

    def _demands(self, candidate: BlockCandidate, op: ProgramOp, *, tiled: bool) -> Demands:
        """By the types of what the operation reads.

        Args:
            tiled: of tokens that are counted.
        """
        streamed = candidate.quantized == "streamed" and (
            op.kind in (OpKind.LOAD, OpKind.READ) or self._is_streamed(candidate, op.layer)
        )
        kv = _kept(candidate, op)
        key = (candidate.quantized, streamed, kv, tiled)
        if key not in self._made:
            precision = self._precisions.of_layer(candidate.quantized, streamed=streamed)
            page = self._footprint.page
            if kv is not None:
                page = replace(page, dtype=kv)
                precision = replace(precision, kv=kv)
            question = self._tiled if tiled else self._q
            asked = replace(question, precision=precision)
            self._made[key] = Demands(asked, page, counted=tiled)
        return self._made[key]

    def _is_streamed(self, candidate: BlockCandidate, layer: int) -> bool:
        """As `Elsewhere` spreads them."""
        count, layers = candidate.streamed, self._q.model.num_layers
        return (layer + 1) * count // layers > layer * count // layers

    # --- decoding ---------------------------------------------------------------------------------

    def _decoded(
        self,
        candidate: BlockCandidate,
        op: ProgramOp,
        lane: LaneLoad,
        context: float,
        *,
        tiled: bool,
    ) -> Demand:
        demands = self._demands(candidate, op, tiled=tiled)
        window = self._windows[op.layer]
        if op.part is Part.CACHE:
            whole = demands.copy(op.queue, self._cache_bytes(candidate, op.queue, context))
            if not tiled or op.queue is Queue.D2H:
                return whole
            return _longer(whole, (candidate.streamed_rows - 1) * self._set_up_s)
        if op.part is Part.PREFIX:
            size = self._made_tokens(candidate) * self._footprint.activation_bytes
            return demands.copy(op.queue, size)
        if op.part is Part.RECOMPUTE:
            return self._recompute(candidate, op, begun=tiled)
        # most candidates have most of their operations in common with others
        if op.part is Part.COLUMNS:
            return self._of_columns(candidate, demands, op)
        dense = op.layer in self._dense
        key = (demands, op.kind, op.queue, op.part, window, dense, _counted(op, lane))
        demand = self._known.get(key)
        if demand is None:
            demand = self._known[key] = demands.of(op, [lane])
        return demand

    def _of_columns(self, candidate: BlockCandidate, demands: Demands, op: ProgramOp) -> Demand:
        rows, whole, maps = candidate.rows, not candidate.mlps, candidate.attention_maps
        key = (demands, op.kind, op.queue, op.part, candidate.columns, rows, whole, maps)
        if key not in self._known:
            share = candidate.columns / self._q.model.intermediate_size
            self._known[key] = demands.of_columns(op, rows, share, whole=whole, maps=maps)
        return self._known[key]

    def _cache_bytes(self, candidate: BlockCandidate, queue: Queue, context: float) -> float:
        """Whole blocks come, of the whole context also where a layer's window is shorter, as they
        lie; a token goes as it was computed.
        """
        if queue is Queue.D2H:
            made = self._footprint.page
            return candidate.streamed_rows * made.bytes_per_block_layer / made.block_size
        page = self._footprint.host_page(candidate)
        if self._at_mean:
            blocks = self._footprint.room.blocks_in_passes(candidate.recomputed_tokens)
        else:
            blocks = page.blocks_for_tokens(max(1, round(context - candidate.recomputed_tokens)))
        return candidate.streamed_rows * blocks * page.bytes_per_block_layer

    def _made_tokens(self, candidate: BlockCandidate) -> float:
        """Of a batch, that are recomputed: prompts may be shorter than a prefix."""
        each = self._footprint.room.made_tokens(candidate.recomputed_tokens)
        return candidate.streamed_rows * each

    def _recompute(self, candidate: BlockCandidate, op: ProgramOp, *, begun: bool) -> Demand:
        """Of prefixes, in parts.

        Args:
            begun: the last part takes what it takes, not its share of a whole one.
        """
        streamed = self._is_streamed(candidate, op.layer)
        precision = self._precisions.of_layer(candidate.quantized, streamed=streamed)
        tokens = round(self._made_tokens(candidate))
        kernels = gpu_kernels(self._q.hardware.accelerator, precision.activations)
        stage = PreciseStage(self._recomputed, precision, kernels)
        parts, rest = divmod(tokens, MADE_AT_ONCE)
        whole_s = stage.cost(MADE_AT_ONCE, self._rates).total_s if parts else 0.0
        if parts and not begun:
            return Demand(whole_s * tokens / MADE_AT_ONCE)
        rest_s = stage.cost(rest, self._rates).total_s if rest else 0.0
        return Demand(parts * whole_s + rest_s)

    def _quantized_s(self, candidate: BlockCandidate, tokens: float) -> float:
        """Of prompts' keys and values, to codes in a slot or in pages. What is read of slots is
        dequantized in registers, and priced as if it lay there in the activations' type.
        """
        if candidate.host_kv is None or not tokens:
            return 0.0
        if self._q.measured_card is not None:
            speed = measured_rates(self._q.measured_card, candidate.host_kv).quantize_elements_per_s
            return tokens * 2 * self._q.model.kv_size / speed + self._rates.kernel_overhead_s
        pages = self._footprint.host_page(candidate), self._footprint.page
        size = tokens * sum(page.bytes_per_block_layer / page.block_size for page in pages)
        return quantized_cost(size, self._rates).total_s

    # --- prompts ----------------------------------------------------------------------------------

    def _prefilled(
        self, candidate: BlockCandidate, op: ProgramOp, parts: PartSizes, *, tiled: bool
    ) -> Demand:
        demands, prompt = self._demands(candidate, op, tiled=tiled), self._footprint.prompt
        total = candidate.rows * prompt
        prefix = self._made_tokens(candidate)
        if op.part is Part.CACHE:
            page = self._footprint.host_page(candidate)
            tokens = candidate.host_rows * prompt - prefix
            return demands.copy(op.queue, tokens * page.bytes_per_block_layer / page.block_size)
        if op.part is Part.CPU_COLUMNS:
            return self._of_columns(candidate, demands, op)
        if op.part in (Part.PREFIX, Part.RESIDUAL):
            tokens = prefix if op.part is Part.PREFIX else total
            return demands.copy(op.queue, tokens * self._footprint.activation_bytes)
        dense, window = op.layer in self._dense, self._windows[op.layer]
        key = (demands, op.kind, op.queue, op.part, window, dense, candidate.rows)
        demand = self._known_prompts.get(key)
        if demand is None:
            alone = self._demands(candidate, op, tiled=True)
            found = self._of_prompts((demands, alone), op, candidate.rows, parts)
            demand = self._known_prompts[key] = found
        if op.kind is OpKind.APPEND:  # to a slot, or to pages in few bits
            coded = candidate.host_rows if candidate.device_kv is None else candidate.rows
            tokens = coded * prompt - prefix
            return _longer(demand, self._quantized_s(candidate, tokens))
        return demand

    def _of_prompts(
        self, demands: tuple[Demands, Demands], op: ProgramOp, rows: int, parts: PartSizes
    ) -> Demand:
        """Which does not depend on where their keys and values go.

        Args:
            demands: of parts, and of those of one prompt in any order.
        """
        whole = self._whole(rows)
        if op.part not in (Part.PRE, Part.POST):
            return demands[0].of(op, [whole])
        # weights are read for each part
        each = (
            count * priced.of(op, [whole._replace(tokens=tokens)]).alone_s
            for priced, sizes in zip(demands, (parts.parts, parts.alone), strict=True)
            for tokens, count in sizes
        )
        return Demand(sum(each) * rows / parts.prompts)

    def _whole(self, rows: int) -> PromptLoad:
        """All prompts of so many sequences."""
        prompt, most = self._footprint.prompt, self._q.max_num_batched_tokens
        seen_tokens, passes = self._q.lengths.prompt_seen_tokens, -(-prompt // most)
        return PromptLoad(rows * prompt, rows, rows, prompt, seen_tokens, passes)


def _counted(op: ProgramOp, lane: LaneLoad) -> TierLoad | int:
    """Of a batch that decodes, what an operation's price depends on."""
    if op.part is Part.QKV:
        return lane.tokens if op.queue is Queue.H2D else lane.host
    if op.part is Part.PARTIAL:
        return lane.device if op.queue is Queue.D2H else lane.host
    if op.kind in (OpKind.APPEND, OpKind.ATTEND):
        return lane.host if op.queue is Queue.CPU else lane.device
    return lane.tokens


def _kept(candidate: BlockCandidate, op: ProgramOp) -> CodeType | None:
    """What the operation reads KV in, if in few bits."""
    if op.queue is Queue.CPU:
        return candidate.host_kv
    return candidate.device_kv if op.kind is OpKind.ATTEND else None


def _longer(demand: Demand, more_s: float) -> Demand:
    return demand._replace(alone_s=demand.alone_s + more_s) if more_s else demand

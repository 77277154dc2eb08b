"""Accelerator memory of a step beside weights and pages, from the operations and their shapes.

The same sums serve twice: before an engine starts they predict the largest step, and while the
emulated accelerator runs they are charged for the time of each operation.
"""

from dataclasses import dataclass
from functools import cached_property

from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.operations import (
    Operation,
    Stage,
    default_stages,
    live_buffers,
    split_experts,
    split_post,
)
from tandem.spec.sampling import MAX_LOGPROBS

_FP32_BYTES = 4
_INDEX_BYTES = 8
KERNEL_SCRATCH_BYTES = 64 << 20
"""Gathered pages and score blocks inside one attention call stay below this."""
SAMPLING_CHUNK_BYTES = {"cpu": 2 << 20, "cuda": 32 << 20}
"""Rows are sampled so many at a time that their integer weights take about this much: of a
vocabulary of 128 thousand, 32 rows. Three arrays of that size are room that KV cannot have."""
SORTED_BYTES = {"cpu": 2 << 20, "cuda": 8 << 20}
"""Of them, so many at a time are sorted where top-k or top-p ask for it."""
_SAMPLED_ROW_BYTES = 16 + MAX_LOGPROBS * 12  # id, validity, log-probabilities; not yet on the host
_SAMPLED_STEPS = 2
_SAMPLING_ARRAYS = 3  # as large as a chunk's weights, at once: weights, their floats, half logits
_SORTING_ARRAYS = (
    5  # as large as what is sorted, beside the weights: values, places, the sort's own
)
_ROUTED_BYTES = 48  # of a token and one of its experts: ids and weights, also in the experts' order
EXPERT_SCRATCH_BYTES = 64 << 20
"""What a GPU's experts, all at work at once, make of as many tokens as that is enough for."""
_FEW_EXPERT_ROWS = 64  # that the compiled kernels work on at a time if there are fewer tokens
_MERGE_ARRAYS = 5  # in float32, as large as the attention's result: the sum, both sides, products


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The shapes that a step may reach.

    Attributes:
        tokens: of the main lane. cohort_tokens: of cohorts, which come on top of those.
        rows: sequences, so rows of logits per step.
        sampled_rows: that a sweep samples at most, where it is not all. cohort_rows: then, of one
            cohort.
        tiers: 2 if attention may be over keys in both tiers.
        device_type: "cpu" or "cuda"; how many rows are sampled at a time depends on it.
    """

    tokens: int
    rows: int
    cohort_tokens: int = 0
    tiers: int = 1
    device_type: str = "cpu"
    sampled_rows: int | None = None
    cohort_rows: int = 0

    @property
    def logits_rows(self) -> int:
        """Rows of logits that a sweep makes."""
        return self.rows if self.sampled_rows is None else self.sampled_rows

    @property
    def kept_rows(self) -> int:
        """Rows of logits that lie there while it does: of the sweep before, and of a cohort that
        ended a sweep earlier.
        """
        if self.sampled_rows is None:
            return self.rows + min(self.rows, self.cohort_tokens)
        return min(self.rows, self.sampled_rows + self.cohort_rows)


class StepMemory:
    """Bytes of a model's activations: held between operations, or taken while one runs."""

    def __init__(self, spec: ModelSpec, dtype: DType) -> None:
        self._spec = spec
        self._dtype = dtype
        # a planner asks for thousands of steps, most of which have these in common
        self._ends: dict[tuple[int, str], int] = {}
        self._working: dict[tuple[bool, bool], int] = {}
        kinds = [layer_operations(spec, layer) for layer in spec.distinct_layers]
        pre, _, _ = default_stages(kinds[0])
        self.pre_token_bytes = self._stage_token_bytes(kinds[0], pre)
        self.post_token_bytes = max(
            self._stage_token_bytes(operations, default_stages(operations).post)
            for operations in kinds
        )
        self.output_token_bytes = self._stage_token_bytes(kinds[0], split_post(kinds[0]).output)
        routed = [each for each in kinds if any(op.experts for op in each)]
        self.route_token_bytes = max(
            (self._stage_token_bytes(each, split_experts(each).output) for each in routed),
            default=0,
        )

    def _stage_token_bytes(self, operations: tuple[Operation, ...], stage: Stage) -> int:
        """Most bytes per token that a stage's operations hold at once, beside what was given.

        Every buffer that an operation writes is new memory, but for the residual.
        """
        made: set[str] = set()
        live = peak = 0
        for cut, operation in enumerate(stage.of(operations), stage.start + 1):
            if operation.experts is not None:  # and all after it, as one
                return max(peak, self._expert_token_bytes(operation.experts))
            new = [buffer for buffer in operation.writes if buffer.name != "residual"]
            size = (live + sum(b.width for b in new)) * self._dtype.size_bytes
            peak = max(peak, size + self._scratch(operation))
            made.update(buffer.name for buffer in new)
            live = sum(b.width for b in live_buffers(operations, cut) if b.name in made)
        return peak

    def _expert_token_bytes(self, experts: ExpertSpec) -> int:
        """Most bytes per token while experts work, one at a time, each on the rows of its tokens.

        At worst those are all tokens: their inputs, gates, ups, activations and results, beside
        what every token holds: its input, the sum of the results in float32, its experts, their
        weights, and its places in the order of experts.
        """
        hidden, size = self._spec.hidden_size, self._dtype.size_bytes
        rows = (2 * hidden + 3 * experts.intermediate_size) * size
        weighted = hidden * (size + _FP32_BYTES)
        held = hidden * (size + _FP32_BYTES)
        return max(rows, weighted) + held + experts.per_token * _ROUTED_BYTES

    def _scratch(self, operation: Operation) -> int:
        """Bytes per token inside one operation, beside its inputs and outputs."""
        if operation.kind == "router":  # scores; in float32, and their softmax
            scores = operation.weights[0].shape[0]
            routed = self._spec.experts.per_token * _ROUTED_BYTES if self._spec.experts else 0
            return scores * (self._dtype.size_bytes + 2 * _FP32_BYTES) + routed
        width = sum(buffer.width for buffer in operation.writes)
        narrow = self._dtype is not DType.FLOAT32
        if operation.kind == "rope":
            # turned in float32; Q, K and V lie in one product, which V keeps; where nothing comes
            # between them and the rotation, their input lives on
            wide = _FP32_BYTES * width * (3 if narrow else 1)
            kept = width if self._spec.qk_norm else self._spec.hidden_size
            return wide + kept * self._dtype.size_bytes
        if operation.kind in ("norm", "head_norm") and self._spec.norm == "rms":
            # a stored weight with an offset is applied in float32 to the end
            arrays = (4 if self._spec.norm_offset else 3) if narrow else 2
            adds = any(buffer.name == "residual" for buffer in operation.writes)
            return (_FP32_BYTES * arrays + adds * self._dtype.size_bytes) * width
        return 0

    @cached_property
    def expert_bytes(self) -> int:
        """While experts work on few tokens, whatever their number: their rows, in float32."""
        experts = self._spec.experts
        if experts is None:
            return 0
        row = 2 * self._spec.hidden_size + experts.intermediate_size
        return _FEW_EXPERT_ROWS * row * _FP32_BYTES

    @cached_property
    def routed_token_bytes(self) -> int:
        """Held per token between the router and the experts: their input, and the choice."""
        experts = self._spec.experts
        if experts is None:
            return 0
        choice = experts.per_token * (_INDEX_BYTES + _FP32_BYTES)
        return self._spec.hidden_size * self._dtype.size_bytes + choice

    @cached_property
    def experts_token_bytes(self) -> int:
        """While experts work, beside their input."""
        experts = self._spec.experts
        if experts is None:
            return 0
        return self._expert_token_bytes(experts) - self._spec.hidden_size * self._dtype.size_bytes

    @cached_property
    def branch_token_bytes(self) -> int:
        """Of a divided MLP, a part of its result."""
        return self._spec.hidden_size * self._dtype.size_bytes

    @cached_property
    def columns_token_bytes(self) -> int:
        """While a part of it is made."""
        return self.post_token_bytes + self.branch_token_bytes

    @cached_property
    def token_bytes(self) -> int:
        """Held per token through all layers: residual, rotation, position, token id and row."""
        residual = self._spec.hidden_size * self._dtype.size_bytes
        return residual + self.rotation_token_bytes + 3 * _INDEX_BYTES

    @cached_property
    def rotation_token_bytes(self) -> int:
        """Cosines and sines of a position, made in the first layer and kept."""
        return len(self._spec.ropes) * 2 * self._spec.head_dim * _FP32_BYTES

    @cached_property
    def qkv_token_bytes(self) -> int:
        """Held per token from PRE to the merge: q, k and v; the turned q and k are copies, while v
        keeps the product of all three.
        """
        q, kv = self._spec.q_size, self._spec.kv_size
        turned = q + kv if self._spec.rope is not None else 0
        return (q + 2 * kv + turned) * self._dtype.size_bytes

    @cached_property
    def partial_token_bytes(self) -> int:
        """One tier's attention: result and log-sum-exp in float32."""
        return (self._spec.q_size + self._spec.num_heads) * _FP32_BYTES

    @cached_property
    def attend_token_bytes(self) -> int:
        """While attending: a new partial result, and the queries in float32 if they are not."""
        narrow = self._dtype is not DType.FLOAT32
        return self.partial_token_bytes + (self._spec.q_size * _FP32_BYTES if narrow else 0)

    @cached_property
    def attention_token_bytes(self) -> int:
        """The merged attention."""
        return self._spec.q_size * self._dtype.size_bytes

    @cached_property
    def merge_token_bytes(self) -> int:
        """While the attention of two tiers is merged."""
        return _MERGE_ARRAYS * self.partial_token_bytes + self.attention_token_bytes

    def logits_bytes(self, rows: int) -> int:
        """Logits of `rows` rows in float32."""
        return rows * self._spec.vocab_size * _FP32_BYTES

    def head_bytes(self, rows: int) -> int:
        """While logits are computed: chosen and normed rows, logits as they come and in float32."""
        narrow = self._dtype is not DType.FLOAT32
        per_row = 2 * self._spec.hidden_size + (self._spec.vocab_size if narrow else 0)
        return rows * per_row * self._dtype.size_bytes + self.logits_bytes(rows)

    def sample_bytes(self, rows: int, copies: int, device_type: str, *, draws: bool) -> int:
        """While `rows` rows are sampled.

        Args:
            copies: of the logits: one if rows are chosen from them, one if they are adjusted.
            draws: tokens are drawn or their probabilities wanted, which takes integer weights.
        """
        row_bytes = self._spec.vocab_size * _INDEX_BYTES
        at_once = min(rows, max(1, SAMPLING_CHUNK_BYTES[device_type] // row_bytes))
        sorted_rows = min(at_once, max(1, SORTED_BYTES[device_type] // row_bytes))
        arrays = max(_SAMPLING_ARRAYS * at_once, at_once + _SORTING_ARRAYS * sorted_rows)
        return copies * self.logits_bytes(rows) + (arrays * row_bytes if draws else 0)

    def largest_bytes(self, step: LargestStep) -> int:
        """Most bytes of activations at once, attention's scratch excluded (`KERNEL_SCRATCH_BYTES`).

        Whatever operation runs, the logits of the last step still lie there, and so do the last
        layer's partial results of each tier.
        """
        tokens = step.tokens + step.cohort_tokens
        held = tokens * (self.token_bytes + step.tiers * self.partial_token_bytes)
        held += self.logits_bytes(step.kept_rows)
        held += _SAMPLED_STEPS * step.rows * _SAMPLED_ROW_BYTES
        working = tokens * self._working_token_bytes(step) + self.expert_bytes
        if step.device_type == "cuda":
            copies = self.routed_token_bytes + self.token_bytes if step.cohort_tokens else 0
            working = max(working, tokens * copies + self._experts_together_bytes(tokens))
        return held + max(working, self.ends_bytes(step))

    def _experts_together_bytes(self, tokens: int) -> int:
        """While a GPU's experts work on so many tokens, at once: beside what every token holds,
        gates, ups, activations and results of as many as are worked on at a time.
        """
        experts = self._spec.experts
        if experts is None:
            return 0
        size, hidden = self._dtype.size_bytes, self._spec.hidden_size
        held = hidden * (size + _FP32_BYTES) + experts.per_token * _ROUTED_BYTES
        each = experts.per_token * (4 * experts.intermediate_size * size + hidden * _FP32_BYTES)
        return tokens * held + min(tokens * each, max(each, EXPERT_SCRATCH_BYTES))

    def _working_token_bytes(self, step: LargestStep) -> int:
        """Most bytes per token that one operation takes, beside what is held through all layers."""
        key = step.cohort_tokens > 0, step.tiers > 1
        found = self._working.get(key)
        if found is None:
            found = self._working[key] = self._working_bytes(*key)
        return found

    def _working_bytes(self, cohorts: bool, both: bool) -> int:
        # several lanes are brought together in a copy for each stage
        joined = self.token_bytes if cohorts else 0
        attending = self.attend_token_bytes
        if both:
            attending = max(attending, self.merge_token_bytes)
        return max(
            joined + self.pre_token_bytes,
            self.qkv_token_bytes + attending,
            self.attention_token_bytes * (2 if joined else 1) + joined + self.post_token_bytes,
            self.routed_token_bytes * (2 if joined else 1) + joined + self.experts_token_bytes,
        )

    def decode_bytes(self, rows: int) -> int:
        """Most bytes at once of a sweep in which every row has one token and gives logits, in one
        tier, without sampling.
        """
        held = rows * (self.token_bytes + self.partial_token_bytes)
        working = rows * self._working_token_bytes(LargestStep(rows, rows))
        together = self._experts_together_bytes(rows)
        return held + max(working, together, self.head_bytes(rows))

    def between_bytes(self, rows: int) -> int:
        """What so many tokens hold from one layer's attention to the next one's, each in memory of
        its own, at most.
        """
        return rows * (self.token_bytes + self.attention_token_bytes + self.qkv_token_bytes)

    def ends_bytes(self, step: LargestStep) -> int:
        """After the last layer: the head's activations, then sampling's."""
        key = rows, device_type = step.logits_rows, step.device_type
        found = self._ends.get(key)
        if found is None:
            sampling = self.sample_bytes(rows, 2, device_type, draws=True)
            found = self._ends[key] = max(self.head_bytes(rows), sampling)
        return found

    @cached_property
    def kernel_buffer_token_bytes(self) -> int:
        """What the compiled kernels keep of a layer's activations for the next one.

        Their buffers only grow and go from one use to the next: attention's result; q, k and v;
        the input of a map, and that input in panels. Two of them come to hold the MLP's or an
        expert's inner width, and experts have one more for results.
        """
        hidden, experts = self._spec.hidden_size, self._spec.experts
        inner = self._spec.intermediate_size
        if experts is not None:
            inner = max(inner if experts.dense_layers else 0, experts.intermediate_size)
        qkv = self._spec.q_size + 2 * self._spec.kv_size
        widths = self._spec.q_size + max(qkv, hidden) + 2 * max(inner, hidden) + hidden
        return (widths + (hidden if experts is not None else 0)) * _FP32_BYTES

    def kept_buffers_bytes(self, step: LargestStep) -> int:
        """Of them, what lies beside `largest_bytes` where layers run on the compiled kernels.

        Layers and sampling take turns, but the buffers stay.
        """
        return min(step.tokens * self.kernel_buffer_token_bytes, self.ends_bytes(step))


def workspace_bytes(spec: ModelSpec, dtype: DType, step: LargestStep) -> int:
    """`StepMemory.largest_bytes` of a model."""
    return StepMemory(spec, dtype).largest_bytes(step)

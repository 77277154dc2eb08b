"""What one decoder layer computes, as an ordered list of operations with costs (contract 1).

Names follow Park and Egger: `LN.0 Q K V Scores Softmax WV Output LN.1 FC.*`, with `QNorm`, `KNorm`,
`Rope`, `LN.Output` and `LN.FC` where the architecture has them. Planner, memory accounting and the
model's execution read the same list. It is the same for all layers; where they differ, in window
and rotation, the specification says how.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

OperationKind = Literal[
    "norm", "linear", "head_norm", "rope", "scores", "softmax", "weighted_sum", "activation"
]
ATTENTION_KINDS: frozenset[OperationKind] = frozenset({"scores", "softmax", "weighted_sum"})


@dataclass(frozen=True, slots=True)
class WeightShape:
    """One weight tensor: canonical name within its layer, and shape (linear: [out, in])."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def is_matrix(self) -> bool:
        """True for the weight of a linear map, not for a norm or a bias."""
        return len(self.shape) > 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """An activation between operations: a field of the layer's state, and elements per token."""

    name: str
    width: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of a layer: what it reads, writes and costs.

    A multiply-add counts as two FLOPs; bias and residual additions are counted; a norm, rotation,
    softmax or activation counts a small nominal number per element.

    Attributes:
        weights: tensors used, each by exactly one operation of the layer.
        reads, writes: buffers; an operation that reads and writes `residual` adds to it.
        flops_per_token: FLOPs per query token that do not depend on the context.
        flops_per_pair: FLOPs per (query token, key it sees) pair.
        kv_write_width: elements per token that become part of the KV cache.
        kv_read_width: elements read from the KV cache per cached token of a sequence.
    """

    name: str
    kind: OperationKind
    weights: tuple[WeightShape, ...]
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    flops_per_token: int
    flops_per_pair: int = 0
    kv_write_width: int = 0
    kv_read_width: int = 0

    @property
    def is_attention(self) -> bool:
        """True for the operations over the KV cache, which the attention kernels execute."""
        return self.kind in ATTENTION_KINDS

    @property
    def weight_elements(self) -> int:
        """Elements of all weights of this operation."""
        return sum(weight.elements for weight in self.weights)

    def weight_bytes(self, dtype: DType) -> int:
        """Bytes of all weights of this operation in `dtype`."""
        return self.weight_elements * dtype.size_bytes

    def flops(self, tokens: int, context: float = 0.0) -> float:
        """FLOPs for `tokens` query tokens that each see `context` keys (a mean is exact too)."""
        return self.flops_per_token * tokens + self.flops_per_pair * tokens * context

    def activation_elements(self, tokens: int) -> int:
        """Elements of activations read plus written for `tokens` tokens (KV cache excluded)."""
        return tokens * sum(buffer.width for buffer in self.reads + self.writes)

    def kv_write_elements(self, tokens: int) -> int:
        """Elements appended to the KV cache for `tokens` tokens."""
        return self.kv_write_width * tokens

    def kv_read_elements(self, cached_tokens: int) -> int:
        """Elements read from the KV cache when the sequences hold `cached_tokens` in total."""
        return self.kv_read_width * cached_tokens


@dataclass(frozen=True, slots=True)
class Stage:
    """The contiguous slice `[start, end)` of a layer's operations, placed on one device."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(
                f"stage bounds must satisfy 0 <= start <= end, not {self.start}, {self.end}"
            )

    def of(self, operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
        """The operations of this stage."""
        return operations[self.start : self.end]


@dataclass(frozen=True, slots=True)
class DefaultStages:
    """The default cuts of a layer; unpacks as `pre, attend, post`."""

    pre: Stage
    attend: Stage
    post: Stage

    def __iter__(self) -> Iterator[Stage]:
        return iter((self.pre, self.attend, self.post))


def default_stages(operations: tuple[Operation, ...]) -> DefaultStages:
    """Cut before and after attention: pre (LN.0 to Rope), attend, post (Output to the end)."""
    attention = [index for index, op in enumerate(operations) if op.is_attention]
    first, last = attention[0], attention[-1] + 1
    return DefaultStages(Stage(0, first), Stage(first, last), Stage(last, len(operations)))


def live_buffers(operations: tuple[Operation, ...], cut: int) -> tuple[Buffer, ...]:
    """What a layer suspended before operation `cut` must hold, besides positions.

    `cut` is 0 to `len(operations)`. The residual is always live. At the cut before attention these
    are the residual, q, k and v; at the cut after it, the residual and the attention's result.

    Raises:
        ValueError: `cut` lies out of range or strictly inside attention, where no cut is allowed.
    """
    stages = default_stages(operations)
    if not 0 <= cut <= len(operations) or stages.attend.start < cut < stages.attend.end:
        raise ValueError(f"{cut} is not a suspension point of these operations")
    residual = operations[0].reads
    written = {b.name: b for op in operations[:cut] for b in op.writes if b not in residual}
    return residual + tuple(b for b in written.values() if _read_next(b, operations[cut:]))


def _read_next(buffer: Buffer, operations: tuple[Operation, ...]) -> bool:
    """True if the buffer's value is read before anything overwrites it."""
    for op in operations:
        if buffer in op.reads:
            return True
        if buffer in op.writes:
            return False
    return False


def layer_operations(spec: ModelSpec) -> tuple[Operation, ...]:
    """The operations of one layer of `spec`, in order of execution."""
    return (*_projections(spec), *_attention(spec), *_mlp(spec))


def _projections(spec: ModelSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    q, k, v = Buffer("q", spec.q_size), Buffer("k", spec.kv_size), Buffer("v", spec.kv_size)
    yield _norm(spec, "LN.0", "attention_norm", residual, x)
    yield _linear("Q", "q", x, q, spec.qkv_bias)
    yield _linear("K", "k", x, k, spec.qkv_bias, kv_write_width=spec.kv_size)
    yield _linear("V", "v", x, v, spec.qkv_bias, kv_write_width=spec.kv_size)
    if spec.qk_norm:
        weight = (spec.head_dim,)
        yield _head_norm("QNorm", WeightShape("q_norm.weight", weight), q)
        yield _head_norm("KNorm", WeightShape("k_norm.weight", weight), k)
    if spec.rope is not None:
        flops = 3 * (q.width + k.width)
        yield Operation("Rope", "rope", (), (q, k), (q, k), flops_per_token=flops)


def _attention(spec: ModelSpec) -> Iterator[Operation]:
    # Scores and probabilities grow with the context and stay inside the kernel: no buffers.
    q, attention = Buffer("q", spec.q_size), Buffer("attention", spec.q_size)
    k, v = Buffer("k", spec.kv_size), Buffer("v", spec.kv_size)
    dots = 2 * spec.q_size
    yield Operation(
        "Scores", "scores", (), (q, k), (), 0, dots + spec.num_heads, kv_read_width=spec.kv_size
    )
    yield Operation("Softmax", "softmax", (), (), (), 0, 4 * spec.num_heads)
    yield Operation(
        "WV", "weighted_sum", (), (v,), (attention,), 0, dots, kv_read_width=spec.kv_size
    )


def _mlp(spec: ModelSpec) -> Iterator[Operation]:
    residual, x = Buffer("residual", spec.hidden_size), Buffer("x", spec.hidden_size)
    attention, mlp = Buffer("attention", spec.q_size), Buffer("mlp", spec.intermediate_size)
    # A branch is added to the residual by its last product, or by the norm after it.
    end = x if spec.post_norms else residual
    yield _linear("Output", "output", attention, end, spec.output_bias)
    if spec.post_norms:
        yield _post_norm(spec, "LN.Output", "post_attention_norm", x, residual)
    yield _norm(spec, "LN.1", "mlp_norm", residual, x)
    if spec.gated:
        gate, up = Buffer("gate", spec.intermediate_size), Buffer("up", spec.intermediate_size)
        yield _linear("FC.gate", "gate", x, gate, spec.mlp_bias)
        yield _linear("FC.up", "up", x, up, spec.mlp_bias)
        yield Operation("FC.act", "activation", (), (gate, up), (mlp,), 5 * mlp.width)
        yield _linear("FC.down", "down", mlp, end, spec.mlp_bias)
    else:
        yield _linear("FC.0", "fc0", x, mlp, spec.mlp_bias)
        yield Operation("FC.act", "activation", (), (mlp,), (mlp,), 4 * mlp.width)
        yield _linear("FC.1", "fc1", mlp, end, spec.mlp_bias)
    if spec.post_norms:
        yield _post_norm(spec, "LN.FC", "post_mlp_norm", x, residual)


def _norm(spec: ModelSpec, name: str, weight: str, source: Buffer, target: Buffer) -> Operation:
    weights = norm_weights(spec, weight)
    flops_per_element = 4 if spec.norm == "rms" else 7
    return Operation(
        name, "norm", weights, (source,), (target,), flops_per_element * spec.hidden_size
    )


def _post_norm(
    spec: ModelSpec, name: str, weight: str, source: Buffer, residual: Buffer
) -> Operation:
    norm = _norm(spec, name, weight, source, residual)
    flops = norm.flops_per_token + residual.width
    return replace(norm, reads=(source, residual), flops_per_token=flops)


def norm_weights(spec: ModelSpec, name: str) -> tuple[WeightShape, ...]:
    """Weights of a norm over the hidden size: a weight, and a bias if it is a layer norm."""
    shape = (spec.hidden_size,)
    parts = ("weight",) if spec.norm == "rms" else ("weight", "bias")
    return tuple(WeightShape(f"{name}.{part}", shape) for part in parts)


def _head_norm(name: str, weight: WeightShape, buffer: Buffer) -> Operation:
    return Operation(name, "head_norm", (weight,), (buffer,), (buffer,), 4 * buffer.width)


def _linear(
    name: str, weight: str, source: Buffer, target: Buffer, bias: bool, kv_write_width: int = 0
) -> Operation:
    weights = [WeightShape(f"{weight}.weight", (target.width, source.width))]
    if bias:
        weights.append(WeightShape(f"{weight}.bias", (target.width,)))
    adds_to_residual = target.name == "residual"
    reads = (source, target) if adds_to_residual else (source,)
    flops = target.width * (2 * source.width + bias + adds_to_residual)
    return Operation(
        name, "linear", tuple(weights), reads, (target,), flops, kv_write_width=kv_write_width
    )

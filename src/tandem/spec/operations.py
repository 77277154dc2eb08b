"""What an operation of a decoder layer is: what it reads, writes and costs, and where to cut.

Planner, memory accounting and the model's execution read the same list (contract 1), which
`layer_operations` makes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec

OperationKind = Literal[
    "norm",
    "linear",
    "head_norm",
    "rope",
    "scores",
    "softmax",
    "weighted_sum",
    "activation",
    "router",
    "expert_linear",
]
MLP_NORM = "LN.1"
"""Name of the operation with which the MLP, or the mixture of experts in its place, begins."""
_KEYS_VALUES = ("LN.0", "K", "V", "KNorm", "Rope")
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
        experts: whose weights these are, a tensor each, if a token needs some of them only.
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
    experts: ExpertSpec | None = None

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

    def read_weight_elements(self, tokens: int) -> float:
        """Elements of the weights that `tokens` tokens need; of experts, the expected number."""
        if self.experts is None:
            return self.weight_elements
        per_expert = self.weights[0].elements
        return self.experts.touched_share(tokens) * self.experts.count * per_expert

    def read_weight_share(self, tokens: int) -> float:
        """Of the weights, what `tokens` tokens need: of experts, which are of one size, the
        expected share.
        """
        return 1.0 if self.experts is None else self.experts.touched_share(tokens)

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


@dataclass(frozen=True, slots=True)
class PostStages:
    """`post` cut before the MLP: the end of attention, and the MLP or experts with their norm."""

    output: Stage
    mlp: Stage


def split_post(operations: tuple[Operation, ...]) -> PostStages:
    """Cut where only the residual is live: before the norm of the MLP."""
    post = default_stages(operations).post
    cut = next(i for i in range(post.start, post.end) if operations[i].name == MLP_NORM)
    return PostStages(Stage(post.start, cut), Stage(cut, post.end))


def split_experts(operations: tuple[Operation, ...]) -> PostStages:
    """Cut between a mixture's router and its experts: `output` is all before them."""
    post = default_stages(operations).post
    cut = next(i for i in range(post.start, post.end) if operations[i].experts is not None)
    return PostStages(Stage(post.start, cut), Stage(cut, post.end))


def keys_values(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """Of a layer's operations, those between its input and its keys and values (KVPR)."""
    return tuple(op for op in operations if op.name in _KEYS_VALUES)


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

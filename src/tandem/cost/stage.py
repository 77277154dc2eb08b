"""Time of a stage's operations on given rates: a roofline with a launch term.

`time = max(FLOPs / rate, bytes / rate) + kernels * overhead`, summed over operations that do not
overlap. Attention reads each cached key and value once per sequence, whatever the query tokens.
"""

from collections.abc import Iterable
from typing import NamedTuple

from tandem.cost.rates import DeviceRates, LinkRates
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation

_FP32_BYTES = 4
_TOKEN_ID_BYTES = 8


class CostBreakdown(NamedTuple):
    """Where time goes; compute and memory overlap, launches do not.

    Attributes:
        apart_s: of memory, by kernels that compute next to nothing, before or after the others.
    """

    compute_s: float = 0.0
    memory_s: float = 0.0
    launch_s: float = 0.0
    apart_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Time on the device."""
        return max(self.compute_s, self.memory_s) + self.launch_s + self.apart_s

    def plus(self, other: "CostBreakdown") -> "CostBreakdown":
        """Work that is added to the same kernels' or overlaps with it as they do."""
        return CostBreakdown(
            self.compute_s + other.compute_s,
            self.memory_s + other.memory_s,
            self.launch_s + other.launch_s,
            self.apart_s + other.apart_s,
        )

    def after(self, apart_s: float) -> "CostBreakdown":
        """Where kernels that only move memory come before."""
        return CostBreakdown(self.compute_s, self.memory_s, self.launch_s, self.apart_s + apart_s)

    def part(self, share: float) -> "CostBreakdown":
        """Of a share of the work, in as many kernels."""
        return CostBreakdown(
            share * self.compute_s, share * self.memory_s, self.launch_s, share * self.apart_s
        )


class AttentionWork(NamedTuple):
    """Attention of some query tokens over the keys of one tier, in one layer.

    Attributes:
        tokens: query tokens.
        pairs: (query token, key it sees) pairs.
        keys: cached tokens read, counted once per sequence.
    """

    tokens: int
    pairs: int
    keys: int


def cost_of(flops: float, size_bytes: float, kernels: int, rates: DeviceRates) -> CostBreakdown:
    """Roofline of `kernels` kernels with this much work together."""
    return CostBreakdown(
        flops / rates.flops_per_s,
        size_bytes / rates.bytes_per_s,
        kernels * rates.kernel_overhead_s,
    )


def stage_cost(
    operations: Iterable[Operation], tokens: int, dtype: DType, rates: DeviceRates
) -> CostBreakdown:
    """Operations outside attention on `tokens` tokens: the weights that they need are read once,
    activations move.
    """
    flops, kernels, those = 0.0, 0, tuple(operations)
    for op in those:
        flops += op.flops(tokens)
        kernels += 1
    return cost_of(flops, stage_bytes(those, tokens, dtype), kernels, rates)


def stage_bytes(operations: Iterable[Operation], tokens: int, dtype: DType) -> float:
    """Weights that `tokens` tokens need, each read once, and activations that move."""
    elements = 0.0
    for op in operations:
        if op.is_attention:
            raise ValueError(f"{op.name} depends on the context; use attention_cost")
        elements += op.read_weight_elements(tokens) + op.activation_elements(tokens)
    return elements * dtype.size_bytes


def attention_cost(
    operations: Iterable[Operation], work: AttentionWork, dtype: DType, rates: DeviceRates
) -> CostBreakdown:
    """The attention operations of one layer as one fused kernel; results leave in float32."""
    flops = size = 0.0
    for op in operations:
        if op.is_attention:
            flops += op.flops_per_pair * work.pairs
            size += op.kv_read_elements(work.keys) * dtype.size_bytes
            size += work.tokens * sum(buffer.width for buffer in op.writes) * _FP32_BYTES
    return cost_of(flops, size, 1, rates)


def append_cost(spec: ModelSpec, tokens: int, dtype: DType, rates: DeviceRates) -> CostBreakdown:
    """Write the keys and values of `tokens` tokens into one layer's pages (read, then written)."""
    return cost_of(0, 2 * 2 * spec.kv_size * tokens * dtype.size_bytes, 1, rates)


def embedding_cost(
    spec: ModelSpec,
    tokens: int,
    dtype: DType,
    rates: DeviceRates,
    link: LinkRates | None = None,
) -> CostBreakdown:
    """Gather `tokens` rows of the embedding.

    Args:
        link: over which they are read, if embeddings are in host memory; its latency is that of one
            read, since all are asked for at once.
    """
    rows = tokens * spec.hidden_size * dtype.size_bytes
    if link is None:
        return cost_of(0, 2 * rows, 1, rates)
    return cost_of(0, rows, 1, rates).plus(copy_cost(rows, link))


def head_cost(spec: ModelSpec, rows: int, dtype: DType, rates: DeviceRates) -> CostBreakdown:
    """Final norm and logits of `rows` rows."""
    weights = spec.hidden_size * (spec.vocab_size + 1) * dtype.size_bytes
    moved = rows * (spec.hidden_size * dtype.size_bytes + spec.vocab_size * _FP32_BYTES)
    return cost_of(2.0 * rows * spec.hidden_size * spec.vocab_size, weights + moved, 2, rates)


def sampling_cost(spec: ModelSpec, rows: int, rates: DeviceRates) -> CostBreakdown:
    """Choose a token from each of `rows` rows of logits: two passes over them."""
    return cost_of(0, 2 * rows * spec.vocab_size * _FP32_BYTES, 2, rates)


def merge_cost(spec: ModelSpec, tokens: int, rates: DeviceRates) -> CostBreakdown:
    """Merge two partial attention results of `tokens` tokens (two read, one written)."""
    return cost_of(0, 3 * tokens * (spec.q_size + spec.num_heads) * _FP32_BYTES, 1, rates)


def addition_cost(spec: ModelSpec, tokens: int, dtype: DType, rates: DeviceRates) -> CostBreakdown:
    """Add two parts of an MLP's result of `tokens` tokens."""
    return cost_of(0, addition_bytes(spec, tokens, dtype), 1, rates)


def addition_bytes(spec: ModelSpec, tokens: int, dtype: DType) -> int:
    """What it reads and writes."""
    return 3 * tokens * spec.hidden_size * dtype.size_bytes


def copy_cost(size_bytes: float, link: LinkRates) -> CostBreakdown:
    """A copy over the link."""
    return CostBreakdown(memory_s=size_bytes / link.bytes_per_s, launch_s=link.latency_s)


def staged_qkv_bytes(spec: ModelSpec, queries: int, appended: int, dtype: DType) -> int:
    """Queries, and keys and values to append, of one layer on their way to the host."""
    return (queries * spec.q_size + appended * 2 * spec.kv_size) * dtype.size_bytes


def partial_bytes(spec: ModelSpec, queries: int) -> int:
    """A partial attention result `(out, lse)` in float32."""
    return queries * (spec.q_size + spec.num_heads) * _FP32_BYTES


def token_bytes(rows: int) -> int:
    """Sampled ids on their way to the host."""
    return rows * _TOKEN_ID_BYTES

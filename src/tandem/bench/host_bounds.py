"""How fast a host could generate at most: weights read, and products computed, at probed rates."""

from dataclasses import dataclass

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import head_parameters, kv_bytes_per_token, layer_parameters


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Probed in the same run: plain reading, and fp32 matrix products."""

    read_bytes_per_s: float
    fp32_flops_per_s: float


def decode_bound(
    spec: ModelSpec, dtype: DType, limits: HostLimits, batch: int, context: float
) -> float:
    """Tokens/s of decode: weights and KV are read once per step, products run at the fp32 rate.

    16-bit products are held against the fp32 rate too, since converted weights could reach it.

    Args:
        context: mean tokens before the one computed.
    """
    weights = spec.num_layers * layer_parameters(spec) + head_parameters(spec)
    read = weights * dtype.size_bytes + batch * context * kv_bytes_per_token(spec, dtype)
    flops = batch * (2 * weights + _attention_flops(spec, context))
    return batch / max(read / limits.read_bytes_per_s, flops / limits.fp32_flops_per_s)


def prefill_bound(spec: ModelSpec, dtype: DType, limits: HostLimits, prompt: int) -> float:
    """Prompt tokens/s of one prompt; the output head is computed for its last token only."""
    layers, head = spec.num_layers * layer_parameters(spec), head_parameters(spec)
    flops = prompt * (2 * layers + _attention_flops(spec, prompt / 2)) + 2 * head
    read = (layers + head) * dtype.size_bytes
    return prompt / max(read / limits.read_bytes_per_s, flops / limits.fp32_flops_per_s)


def _attention_flops(spec: ModelSpec, context: float) -> float:
    """Of one query token over `context` keys, all layers."""
    return 4 * spec.num_layers * spec.num_heads * spec.head_dim * context

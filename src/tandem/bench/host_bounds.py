"""How fast a host could generate at most: weights read, and products computed, at probed rates."""

from dataclasses import dataclass

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import head_parameters, read_layers_parameters, seen_keys


@dataclass(frozen=True, slots=True)
class HostLimits:
    """Probed in the same run: plain reading, and fp32 matrix products."""

    read_bytes_per_s: float
    fp32_flops_per_s: float


def decode_bound(
    spec: ModelSpec, dtype: DType, limits: HostLimits, batch: int, context: float
) -> float:
    """Tokens/s of decode: the weights that a step needs and its KV are read once per step, products
    run at the fp32 rate.

    16-bit products are held against the fp32 rate too, since converted weights could reach it.

    Args:
        context: mean tokens before the one computed.
    """
    products = read_layers_parameters(spec, 1) + head_parameters(spec)
    keys = seen_keys(spec, context)
    read = decode_bytes(spec, dtype, batch, context)
    flops = batch * (2 * products + _attention_flops(spec, keys))
    return batch / max(read / limits.read_bytes_per_s, flops / limits.fp32_flops_per_s)


def decode_bytes(spec: ModelSpec, dtype: DType, batch: int, context: float) -> float:
    """Weights and KV that a step of decode reads, once each."""
    kv = batch * seen_keys(spec, context) * 2 * spec.kv_size
    weights = read_layers_parameters(spec, batch) + head_parameters(spec)
    return (weights + kv) * dtype.size_bytes


def prefill_bound(spec: ModelSpec, dtype: DType, limits: HostLimits, prompt: int) -> float:
    """Prompt tokens/s of one prompt; the output head is computed for its last token only."""
    head, products = head_parameters(spec), read_layers_parameters(spec, 1)
    flops = prompt * (2 * products + _attention_flops(spec, _mean_keys(spec, prompt))) + 2 * head
    read = (read_layers_parameters(spec, prompt) + head) * dtype.size_bytes
    return prompt / max(read / limits.read_bytes_per_s, flops / limits.fp32_flops_per_s)


def _mean_keys(spec: ModelSpec, prompt: int) -> float:
    """Keys that a token of a prompt sees in the mean, summed over all layers."""
    windows = (min(prompt, window or prompt) for window in spec.layer_windows)
    return sum(window - window * window / (2 * prompt) for window in windows)


def _attention_flops(spec: ModelSpec, keys: float) -> float:
    """Of one query token over `keys` keys of all layers together."""
    return 4 * spec.num_heads * spec.head_dim * keys

"""Decoding a batch whose KV cache lies on the host, row by row (KVPR, section 3.2)."""

from dataclasses import dataclass, replace

from tandem.cost.kvpr.recompute import KVFetch, RecomputeRates, best_recompute
from tandem.cost.tier_bytes import TierBytes


@dataclass(frozen=True, slots=True)
class DecodeTime:
    """A whole generation, with and without recomputation.

    Attributes:
        recompute_share: of all cached tokens fetched, those recomputed.
    """

    total_s: float
    transfer_only_s: float
    recompute_share: float

    @property
    def gain(self) -> float:
        """Speed-up by recomputation."""
        return self.transfer_only_s / self.total_s


def decode_time(
    fetch: KVFetch,
    rates: RecomputeRates,
    *,
    layers: int,
    generate: int,
    block_tokens: int = 1,
) -> DecodeTime:
    """Fetches of `generate` steps over `layers` layers; `fetch.context` is the first step's.

    The layer's own compute hides behind the next layer's activations (double buffering), so that
    only fetching counts.

    Raises:
        ValueError: nothing to generate.
    """
    if generate < 1 or layers < 1:
        raise ValueError(f"{generate} steps of {layers} layers")
    total_s = alone_s = 0.0
    recomputed = cached = 0
    for step in range(generate):
        now = replace(fetch, context=fetch.context + step)
        split = best_recompute(now, rates, block_tokens)
        total_s += layers * split.time.total_s
        alone_s += layers * split.transfer_only_s
        recomputed += split.tokens
        cached += now.context
    return DecodeTime(total_s, alone_s, recomputed / cached if cached else 0.0)


def fetch_memory(fetch: KVFetch, *, layers: int, recomputed: int, keep_kv: bool) -> TierBytes:
    """Where a fetched KV cache lies; weights are not counted.

    The accelerator holds two layers' keys and values and the activations of one; the host all keys
    and values, pinned, and the activations of the recomputed tokens.

    Args:
        recomputed: tokens of each sequence that are recomputed.
        keep_kv: whether the host keeps keys and values of those as well.
    """
    kv_layer = fetch.rows * fetch.context * fetch.kv_bytes_per_token
    activations = fetch.rows * recomputed * fetch.activation_bytes_per_token
    stored = fetch.context if keep_kv else fetch.context - recomputed
    kv_stored = fetch.rows * stored * fetch.kv_bytes_per_token
    return TierBytes(2 * kv_layer + activations, pinned_bytes=layers * (kv_stored + activations))

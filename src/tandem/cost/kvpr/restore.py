"""Bringing back a request whose KV cache lies on the host, or nowhere.

The trade of KVPR's equation 12 for a whole model: a prefix is computed again from its tokens while
keys and values of the rest cross the link. Transfer alone and recomputation alone are its ends.
"""

from dataclasses import dataclass

from tandem.cost.kvpr.recompute import RecomputeRates


@dataclass(frozen=True, slots=True)
class Restore:
    """A request of `context` tokens, all layers.

    Attributes:
        token_flops: of one token's linear maps. pair_flops: of one token that sees one key.
        kv_bytes_per_token: over the link.
        stored: tokens at the end whose keys and values the host has; the others must be computed.
    """

    context: int
    stored: int
    token_flops: float
    pair_flops: float
    kv_bytes_per_token: float

    def __post_init__(self) -> None:
        if not 0 <= self.stored <= self.context:
            raise ValueError(f"{self.stored} of {self.context} tokens stored")


@dataclass(frozen=True, slots=True)
class RestoreTime:
    """The first `tokens` are computed while the rest is fetched."""

    tokens: int
    compute_s: float
    transfer_s: float

    @property
    def time_s(self) -> float:
        """When both are done."""
        return max(self.compute_s, self.transfer_s)


def restore_time(restore: Restore, tokens: int, rates: RecomputeRates) -> RestoreTime:
    """Computing `tokens` from their ids, causal attention among them included."""
    pairs = tokens * (tokens + 1) / 2
    flops = tokens * restore.token_flops + pairs * restore.pair_flops
    size = (restore.context - tokens) * restore.kv_bytes_per_token
    return RestoreTime(tokens, flops / rates.flops_per_s, size / rates.link_bytes_per_s)


def best_restore(restore: Restore, rates: RecomputeRates, block_tokens: int = 1) -> RestoreTime:
    """The fastest way back, in whole blocks (or all); the fewest tokens among equals.

    Computing rises and fetching falls with every token: bisection finds the first block at which
    computing takes as long, and the best is that one or the one before.
    """
    first = restore.context - restore.stored
    low, high = -(-first // block_tokens), -(-restore.context // block_tokens)
    while low < high:
        middle = (low + high) // 2
        time = restore_time(restore, min(middle * block_tokens, restore.context), rates)
        if time.compute_s >= time.transfer_s:
            high = middle
        else:
            low = middle + 1
    lowest = min(-(-first // block_tokens) * block_tokens, restore.context)
    candidates = {
        max(min(blocks * block_tokens, restore.context), lowest) for blocks in (low - 1, low)
    }
    times = [restore_time(restore, tokens, rates) for tokens in sorted(candidates)]
    return min(times, key=lambda time: time.time_s)

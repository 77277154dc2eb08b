"""Bringing back a request whose KV cache lies on the host, or nowhere.

The trade of KVPR's equation 12 for a whole model: a prefix is computed again from its tokens while
keys and values of the rest cross the link. Transfer alone and recomputation alone are its ends.
"""

from collections.abc import Callable
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


def best_split(
    least: int,
    most: int,
    compute_s: Callable[[int], float],
    transfer_s: Callable[[int], float],
) -> int:
    """Of `least` to `most`, how many leading blocks to compute, so that these and the transfer of
    the others have ended soonest; the fewest among equals.

    Computing rises and fetching falls with every block: bisection finds the first at which
    computing takes as long, and the best is that one or the one before.
    """
    low, high = least, most
    while low < high:
        middle = (low + high) // 2
        if compute_s(middle) >= transfer_s(middle):
            high = middle
        else:
            low = middle + 1
    candidates = (max(low - 1, least), low)
    return min(candidates, key=lambda blocks: max(compute_s(blocks), transfer_s(blocks)))


def best_restore(restore: Restore, rates: RecomputeRates, block_tokens: int = 1) -> RestoreTime:
    """The fastest way back, in whole blocks (or all); the fewest tokens among equals."""

    def time(blocks: int) -> RestoreTime:
        return restore_time(restore, min(blocks * block_tokens, restore.context), rates)

    first = restore.context - restore.stored
    least, most = -(-first // block_tokens), -(-restore.context // block_tokens)
    return time(best_split(least, most, lambda n: time(n).compute_s, lambda n: time(n).transfer_s))

"""How much of a layer's KV cache to recompute from activations (KVPR, equations 6 to 12).

`t(l) = b l h p / v_link + max(4 b l h kv / v_gpu, 2 b (s - l) kv p / v_link)` is convex and linear
between its breakpoints, so the best `l` is one of them.
"""

from dataclasses import dataclass
from enum import StrEnum


class WeightOrder(StrEnum):
    """When the projections of attention come, relative to keys and values (section 3.3)."""

    RESIDENT = "resident"  # they are there
    FINE = "fine"  # W_K and W_V first: recomputation overlaps with the rest of the link's work
    COARSE = "coarse"  # all four last: recomputation begins when the link has done everything


@dataclass(frozen=True, slots=True)
class RecomputeRates:
    """What the link and the accelerator reach.

    Attributes:
        flops_per_s: large dense products, efficiency included: `v_gpu`.
    """

    link_bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class KVFetch:
    """Keys and values of one layer that the accelerator needs and the host has.

    Attributes:
        rows, context: sequences, and cached tokens of each.
        hidden_size, kv_size: elements per token of an activation, and of keys (or values).
        activation_element_bytes, kv_element_bytes: 2 for 16 bits, 0.5 for 4.
        activations_resident: whether the activations are on the accelerator already.
        kept_as_activations: tokens of the prefix whose keys and values are not stored at all; they
            must be recomputed, and the prefix never shrinks.
        kv_projection_bytes, other_projection_bytes: `W_K` with `W_V`, and `W_Q` with `W_O`, where
            they cross the link for this layer too.
    """

    rows: int
    context: int
    hidden_size: int
    kv_size: int
    activation_element_bytes: float = 2
    kv_element_bytes: float = 2
    activations_resident: bool = False
    kept_as_activations: int = 0
    weight_order: WeightOrder = WeightOrder.RESIDENT
    kv_projection_bytes: float = 0
    other_projection_bytes: float = 0

    def __post_init__(self) -> None:
        if not 0 <= self.kept_as_activations <= self.context:
            raise ValueError(f"{self.kept_as_activations} of {self.context} tokens kept")

    @property
    def activation_bytes_per_token(self) -> float:
        """Equation 6 for one token of one sequence."""
        return self.hidden_size * self.activation_element_bytes

    @property
    def kv_bytes_per_token(self) -> float:
        """Equation 7 for one token of one sequence."""
        return 2 * self.kv_size * self.kv_element_bytes

    @property
    def flops_per_token(self) -> float:
        """Equation 9 for one token of one sequence."""
        return 4.0 * self.hidden_size * self.kv_size


@dataclass(frozen=True, slots=True)
class FetchTime:
    """When keys and values are all there.

    Attributes:
        activation_s: activations over the link, before all else.
        recompute_end_s, link_end_s: when either has done its part.
    """

    activation_s: float
    recompute_s: float
    recompute_end_s: float
    link_end_s: float

    @property
    def total_s(self) -> float:
        """The later of the two (equation 11)."""
        return max(self.recompute_end_s, self.link_end_s)


@dataclass(frozen=True, slots=True)
class RecomputeSplit:
    """The first `tokens` are recomputed, the others fetched.

    Attributes:
        transfer_only_s: what fetching everything would take.
        reason: why not more, or why none.
    """

    tokens: int
    time: FetchTime
    transfer_only_s: float
    reason: str

    @property
    def gain(self) -> float:
        """Speed-up over fetching everything."""
        return self.transfer_only_s / self.time.total_s if self.time.total_s else 1.0


def fetch_time(fetch: KVFetch, tokens: float, rates: RecomputeRates) -> FetchTime:
    """Equation 11, with weights that cross the link in the order of `fetch.weight_order`.

    Args:
        tokens: of each sequence, recomputed; 0 to `fetch.context`.
    """
    link = rates.link_bytes_per_s
    per_token = 0.0 if fetch.activations_resident else fetch.activation_bytes_per_token
    activation_s = fetch.rows * tokens * per_token / link
    rest_s = fetch.rows * (fetch.context - tokens) * fetch.kv_bytes_per_token / link
    recompute_s = fetch.rows * tokens * fetch.flops_per_token / rates.flops_per_s
    ready_s, weights_s = 0.0, 0.0
    if fetch.weight_order is not WeightOrder.RESIDENT:
        ready_s = fetch.kv_projection_bytes / link
        weights_s = (fetch.kv_projection_bytes + fetch.other_projection_bytes) / link
    link_end_s = activation_s + rest_s + weights_s
    begin_s = link_end_s if fetch.weight_order is WeightOrder.COARSE else activation_s + ready_s
    return FetchTime(activation_s, recompute_s, begin_s + recompute_s, link_end_s)


def best_recompute(fetch: KVFetch, rates: RecomputeRates, block_tokens: int = 1) -> RecomputeSplit:
    """The best number of tokens to recompute, in whole blocks (or all); the fewest among equals.

    Raises:
        ValueError: blocks of less than one token.
    """
    if block_tokens < 1:
        raise ValueError(f"blocks of {block_tokens} tokens")
    candidates = sorted(
        {
            tokens
            for ideal in (0.0, _crossing(fetch, rates), float(fetch.context))
            for tokens in _whole_blocks(ideal, fetch, block_tokens)
        }
    )
    best = min(candidates, key=lambda tokens: fetch_time(fetch, tokens, rates).total_s)
    alone = fetch_time(fetch, 0, rates).total_s
    at_least = best > 0 and best == _lowest(fetch, block_tokens)
    reason = "no more than what is kept as activations only" if at_least else _reason(fetch, best)
    return RecomputeSplit(best, fetch_time(fetch, best, rates), alone, reason)


def _crossing(fetch: KVFetch, rates: RecomputeRates) -> float:
    """Where recomputation and the rest of the transfer end together, weights included."""
    link = rates.link_bytes_per_s
    transfer_s = fetch.rows * fetch.kv_bytes_per_token / link
    recompute_s = fetch.rows * fetch.flops_per_token / rates.flops_per_s
    later_s = fetch.other_projection_bytes / link
    if fetch.weight_order is not WeightOrder.FINE:
        later_s = 0.0
    return (fetch.context * transfer_s + later_s) / (transfer_s + recompute_s)


def _whole_blocks(ideal: float, fetch: KVFetch, block: int) -> tuple[int, int]:
    below = int(min(ideal, fetch.context)) // block * block
    above = min(below + block, fetch.context)
    lowest = _lowest(fetch, block)
    return max(below, lowest), max(above, lowest)


def _lowest(fetch: KVFetch, block: int) -> int:
    return min(-(-fetch.kept_as_activations // block) * block, fetch.context)


def _reason(fetch: KVFetch, tokens: int) -> str:
    activation, kv = fetch.activation_bytes_per_token, fetch.kv_bytes_per_token
    if tokens == fetch.context:
        return "recomputing is faster than fetching throughout"
    if tokens:
        return "recomputation and transfer end together"
    if not fetch.activations_resident and activation >= kv:
        grouped = fetch.hidden_size >= 2 * fetch.kv_size  # of as many bits
        why = "grouped queries leave" if grouped else "in so few bits they leave"
        return (
            f"activations cost the link {activation:.0f} bytes per token, keys and values "
            f"{kv:.0f}: {why} nothing to save"
        )
    if fetch.weight_order is WeightOrder.COARSE:
        return "recomputation begins when the link is done, and takes longer than it saves there"
    return "not a whole block is worth recomputing"

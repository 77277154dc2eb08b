"""Recomputation when several batches cross a layer before the next (KVPR, section 3.2, figure 4).

In the steady state the activations of the next batch cross the link while this one is recomputed,
so that a batch takes the longer of the link's and the accelerator's work. The paper takes the split
of equation 12, made for one batch, here too.
"""

from dataclasses import dataclass

from tandem.cost.kvpr.recompute import KVFetch, RecomputeRates


@dataclass(frozen=True, slots=True)
class ColumnWork:
    """One layer of a block of equal batches.

    Attributes:
        fetch: of one batch.
        layer_weight_bytes: that cross the link once for all batches; 0 if resident.
        compute_s: of one batch on the accelerator, beside recomputation.
    """

    fetch: KVFetch
    batches: int
    layer_weight_bytes: float = 0.0
    compute_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ColumnPeriod:
    """What one batch costs in the steady state."""

    tokens: int
    link_s: float
    accelerator_s: float

    @property
    def time_s(self) -> float:
        """The longer of both."""
        return max(self.link_s, self.accelerator_s)


def column_period(work: ColumnWork, tokens: int, rates: RecomputeRates) -> ColumnPeriod:
    """The steady state when the first `tokens` of each sequence are recomputed."""
    fetch = work.fetch
    activation = 0.0 if fetch.activations_resident else fetch.activation_bytes_per_token
    size = tokens * activation + (fetch.context - tokens) * fetch.kv_bytes_per_token
    link_s = (fetch.rows * size + work.layer_weight_bytes / work.batches) / rates.link_bytes_per_s
    recompute_s = fetch.rows * tokens * fetch.flops_per_token / rates.flops_per_s
    return ColumnPeriod(tokens, link_s, work.compute_s + recompute_s)


def best_column(work: ColumnWork, rates: RecomputeRates, block_tokens: int = 1) -> ColumnPeriod:
    """The split of the shortest period, in whole blocks (or all); the fewest tokens among equals.

    The link's work falls and the accelerator's rises with every token, both linearly, so the best
    is where they cross, or an end.
    """
    fetch = work.fetch
    first, last = column_period(work, 0, rates), column_period(work, fetch.context, rates)
    gap_s = first.link_s - first.accelerator_s
    closing_s = gap_s - (last.link_s - last.accelerator_s)
    crossing = fetch.context * gap_s / closing_s if closing_s > 0 else 0.0
    below = int(min(max(crossing, 0.0), fetch.context)) // block_tokens * block_tokens
    lowest = -(-fetch.kept_as_activations // block_tokens) * block_tokens
    candidates = {
        max(tokens, min(lowest, fetch.context))
        for tokens in (0, below, min(below + block_tokens, fetch.context), fetch.context)
    }
    periods = [column_period(work, tokens, rates) for tokens in sorted(candidates)]
    return min(periods, key=lambda period: period.time_s)

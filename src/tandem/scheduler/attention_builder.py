"""Which blocks of which tier a lane's tokens attend to."""

from dataclasses import dataclass

import numpy as np

from tandem.plan.binding import IntArray, LongArray, TierAttention
from tandem.scheduler.rows import RowTable
from tandem.spec.tier import TIERS, Tier


@dataclass(frozen=True, slots=True)
class LaneTokens:
    """A lane's query tokens, ordered by row.

    Attributes:
        rows: int64 [rows]; the first `num_decode` have one token each.
        counts: int32 [rows]; tokens per row. starts: int32 [rows + 1]; their sums.
        before, after: int32 [rows]; submitted tokens without these, and with them.
        token_rows: int64 [tokens]; positions: int32 [tokens].
        hosted: some row has keys on the host.
    """

    rows: LongArray
    counts: IntArray
    starts: IntArray
    before: IntArray
    after: IntArray
    token_rows: LongArray
    positions: IntArray
    num_decode: int
    hosted: bool


class AttentionBuilder:
    """Reads block tables off the row table."""

    def __init__(self, rows: RowTable, block_size: int) -> None:
        self._rows = rows
        self._size = block_size

    def build(
        self, at: LongArray, tokens: LaneTokens, spare_blocks: int
    ) -> dict[Tier, TierAttention]:
        """Each tier's part, for rows `at` [rows]; a tier without blocks is absent.

        Args:
            spare_blocks: by how much tables are wider than this step needs.
        """
        r = self._rows
        if not tokens.hosted:
            blocks = -(-int(tokens.after.max(initial=0)) // self._size)
            table = r.block_ids[at, : blocks + spare_blocks]
            whole = TierAttention(
                None, tokens.starts, tokens.num_decode, tokens.positions, table, None
            )
            return {Tier.DEVICE: whole}
        found: dict[Tier, TierAttention] = {}
        for tier in TIERS:
            held = r.num_in_tier(tier, at)
            chosen = np.flatnonzero(held)
            if len(chosen):
                width = int(held.max()) + spare_blocks
                found[tier] = self._part(tier, at[chosen], width, chosen, tokens)
        return found

    def _part(
        self, tier: Tier, at: LongArray, width: int, chosen: LongArray, tokens: LaneTokens
    ) -> TierAttention:
        """The part of the `chosen` rows, at places `at`, which have up to `width` blocks there."""
        r = self._rows
        table, index = r.tier_ids[tier, at, :width], r.tier_index[tier, at, :width]
        if len(chosen) == len(tokens.rows):
            return TierAttention(
                None, tokens.starts, tokens.num_decode, tokens.positions, table, index
            )
        picked = _tokens_of(chosen, tokens)
        starts = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum(tokens.counts[chosen], out=starts[1:])
        return TierAttention(
            token_index=picked,
            query_start=starts,
            num_decode=int(np.count_nonzero(chosen < tokens.num_decode)),
            positions=tokens.positions[picked],
            block_table=table,
            block_index=index,
        )


def _tokens_of(chosen: LongArray, tokens: LaneTokens) -> LongArray:
    """The lane's tokens of the `chosen` rows: int64 [t]."""
    if tokens.num_decode == len(tokens.rows):
        return chosen
    counts = tokens.counts[chosen]
    ends = np.cumsum(counts, dtype=np.int64)
    offsets = np.arange(int(ends[-1]), dtype=np.int64) - np.repeat(ends - counts, counts)
    return np.repeat(tokens.starts[chosen], counts) + offsets

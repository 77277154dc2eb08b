"""Which blocks of which tier a lane's tokens attend to."""

from dataclasses import dataclass

import numpy as np

from tandem.plan.binding import IntArray, LongArray, TierAttention
from tandem.scheduler.rows import RowTable
from tandem.spec.tier import TIERS, Tier

FAR = 1 << 20
"""Logical number of padding blocks: beyond any position, so that causality drops them."""


@dataclass(frozen=True, slots=True)
class LaneTokens:
    """A lane's query tokens, ordered by row.

    Attributes:
        rows: int32 [rows]; the first `num_decode` have one token each.
        counts: int32 [rows]; tokens per row. starts: int32 [rows + 1]; their sums.
        token_rows: int64 [tokens]; positions: int32 [tokens].
    """

    rows: IntArray
    counts: IntArray
    starts: IntArray
    token_rows: LongArray
    positions: IntArray
    num_decode: int


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Blocks of some rows in one tier.

    Attributes:
        per_row: int [rows]. table, index: int32 [rows, widest]; as in `TierAttention`.
    """

    per_row: IntArray
    table: IntArray
    index: IntArray


class AttentionBuilder:
    """Reads block tables off the row table."""

    def __init__(self, rows: RowTable, block_size: int) -> None:
        self._rows = rows
        self._size = block_size

    def build(self, at: LongArray, tokens: LaneTokens) -> dict[Tier, TierAttention]:
        """Each tier's part, for rows `at` [rows]; a tier without blocks is absent."""
        r = self._rows
        blocks = (r.submitted[at] + tokens.counts + (self._size - 1)) // self._size
        if not r.num_host_blocks[at].any():
            table = r.block_ids[at, : int(blocks.max(initial=0))]
            whole = TierAttention(
                None, tokens.starts, tokens.num_decode, tokens.positions, table, None
            )
            return {Tier.DEVICE: whole}
        scattered = bool(r.scattered[at].any())
        found: dict[Tier, TierAttention] = {}
        for tier in TIERS:
            part = self._scattered(tier, at, blocks) if scattered else self._run(tier, at, blocks)
            chosen = np.flatnonzero(part.per_row)
            if len(chosen):
                found[tier] = _tier_part(part, chosen, tokens)
        return found

    def _run(self, tier: Tier, at: LongArray, blocks: IntArray) -> _Blocks:
        """Blocks in `tier` where every row has all its device blocks before all host blocks."""
        r = self._rows
        device = np.minimum(r.num_blocks[at] - r.num_host_blocks[at], blocks)
        per_row = device if tier is Tier.DEVICE else blocks - device
        column = np.arange(int(per_row.max(initial=0)), dtype=np.int32)
        if tier is Tier.DEVICE or not device.any():
            index = np.broadcast_to(column, (len(at), len(column)))
            table = r.block_ids[at, : len(column)]
        else:
            index = device[:, None] + column
            last = r.block_ids.shape[1] - 1
            table = r.block_ids[at[:, None], np.minimum(index, last)]
        present = column < per_row[:, None]
        return _Blocks(per_row, np.where(present, table, 0), np.where(present, index, FAR))

    def _scattered(self, tier: Tier, at: LongArray, blocks: IntArray) -> _Blocks:
        """Blocks in `tier`, wherever they lie in the rows."""
        r, width = self._rows, int(blocks.max(initial=0))
        here = (r.block_tiers[at, :width] == int(tier)) & (np.arange(width) < blocks[:, None])
        per_row = here.sum(axis=1, dtype=np.int32)
        widest = int(per_row.max(initial=0))
        index = np.argsort(~here, axis=1, kind="stable")[:, :widest].astype(np.int32)
        table = np.take_along_axis(r.block_ids[at, :width], index, axis=1)
        present = np.arange(widest, dtype=np.int32) < per_row[:, None]
        return _Blocks(per_row, np.where(present, table, 0), np.where(present, index, FAR))


def _tier_part(part: _Blocks, chosen: LongArray, tokens: LaneTokens) -> TierAttention:
    """The part of the `chosen` rows, which have blocks in the tier."""
    if len(chosen) == len(tokens.rows):
        return TierAttention(
            None, tokens.starts, tokens.num_decode, tokens.positions, part.table, part.index
        )
    counts = tokens.counts[chosen]
    starts = np.zeros(len(chosen) + 1, dtype=np.int32)
    np.cumsum(counts, out=starts[1:])
    offsets: LongArray = np.arange(int(starts[-1]), dtype=np.int64) - np.repeat(starts[:-1], counts)
    index: LongArray = np.repeat(tokens.starts[chosen], counts) + offsets
    return TierAttention(
        token_index=index,
        query_start=starts,
        num_decode=int(np.count_nonzero(chosen < tokens.num_decode)),
        positions=tokens.positions[index],
        block_table=part.table[chosen],
        block_index=part.index[chosen],
    )

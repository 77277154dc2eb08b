"""Turn rows and token counts into a lane's arrays."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LaneBinding, LongArray, TierAppend, TierAttention
from tandem.scheduler.rows import RowTable
from tandem.spec.tier import TIERS, Tier

FAR = 1 << 20
"""Logical number of padding blocks: beyond any position, so that causality drops them."""


@dataclass(frozen=True, slots=True)
class BuiltLane:
    """A lane's arrays, and what the scheduler records of them.

    Attributes:
        counts: int32 [rows]; tokens per row.
        sampled: int32 [n]; rows that reach their end in this step, in the order of `logits_index`.
    """

    binding: LaneBinding
    counts: IntArray
    sampled: IntArray


class LaneBuilder:
    """Builds bindings from the row table; reads only.

    Args:
        tokens_of: known tokens of a row's sequence.
    """

    def __init__(
        self, rows: RowTable, block_size: int, tokens_of: Callable[[int], "array[int]"]
    ) -> None:
        self._rows = rows
        self._size = block_size
        self._tokens_of = tokens_of

    def build(self, decode: IntArray, chunks: list[tuple[int, int]]) -> BuiltLane:
        """A lane of `decode` rows with one token each and `chunks` of (row, tokens).

        Blocks for the new tokens must have been allocated. Chunks of one token are decodes here.
        """
        singles = [row for row, count in chunks if count == 1]
        longer = [(row, count) for row, count in chunks if count > 1]
        first = np.concatenate([decode, np.array(singles, dtype=np.int32)])
        rows = np.concatenate([first, np.array([row for row, _ in longer], dtype=np.int32)])
        counts = np.ones(len(rows), dtype=np.int32)
        counts[len(first) :] = [count for _, count in longer]
        starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        token_rows = np.repeat(rows, counts).astype(np.int64)
        positions = self._positions(rows, counts, starts)
        reaches = self._reaches_end(rows, counts)
        binding = LaneBinding(
            rows=rows,
            token_ids=self._token_ids(rows, counts, starts, len(first)),
            token_rows=token_rows,
            positions=positions,
            attention=self._attention(rows, counts, starts, positions, len(first)),
            append=self._append(token_rows, positions),
            logits_index=(starts[1:][reaches] - 1).astype(np.int64),
        )
        return BuiltLane(binding, counts, rows[reaches])

    def _positions(self, rows: IntArray, counts: IntArray, starts: IntArray) -> IntArray:
        offsets = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], counts)
        return np.repeat(self._rows.submitted[rows], counts) + offsets

    def _token_ids(
        self, rows: IntArray, counts: IntArray, starts: IntArray, num_first: int
    ) -> LongArray:
        """Known ids from the host; -1 where the last sampled id is in the device's slot table."""
        ids = np.full(starts[-1], -1, dtype=np.int64)
        from_host = np.flatnonzero(~self._rows.on_device[rows])
        for i in np.union1d(from_host, np.arange(num_first, len(rows))).tolist():
            row, count = int(rows[i]), int(counts[i])
            begin = int(self._rows.submitted[row])
            known = min(count, int(self._rows.known[row]) - begin)
            ids[starts[i] : starts[i] + known] = self._tokens_of(row)[begin : begin + known]
        return ids

    def _reaches_end(self, rows: IntArray, counts: IntArray) -> NDArray[np.bool_]:
        """Rows of which no token is left to compute after this step: they sample the next."""
        r = self._rows
        return r.submitted[rows] + counts == r.known[rows] + r.pending[rows]

    # --- KV ---------------------------------------------------------------------------------------

    def _append(self, token_rows: LongArray, positions: IntArray) -> dict[Tier, TierAppend]:
        r, size = self._rows, self._size
        index = positions // size
        slots = r.block_ids[token_rows, index].astype(np.int64) * size + positions % size
        tiers = r.block_tiers[token_rows, index]
        found: dict[Tier, TierAppend] = {}
        for tier in TIERS:
            where = np.flatnonzero(tiers == tier)
            if len(where) == len(tiers):
                return {tier: TierAppend(None, slots)}
            if len(where):
                found[tier] = TierAppend(where, slots[where])
        return found

    def _attention(
        self,
        rows: IntArray,
        counts: IntArray,
        starts: IntArray,
        positions: IntArray,
        num_decode: int,
    ) -> dict[Tier, TierAttention]:
        blocks = -(-(self._rows.submitted[rows] + counts) // self._size)
        if not self._rows.num_host_blocks[rows].any():
            table = self._rows.block_ids[rows, : int(blocks.max(initial=0))]
            whole = TierAttention(None, starts, num_decode, positions, table, None)
            return {Tier.DEVICE: whole}
        found: dict[Tier, TierAttention] = {}
        for tier in TIERS:
            part = self._tier_part(tier, rows, counts, starts, positions, num_decode, blocks)
            if part is not None:
                found[tier] = part
        return found

    def _tier_part(
        self,
        tier: Tier,
        rows: IntArray,
        counts: IntArray,
        starts: IntArray,
        positions: IntArray,
        num_decode: int,
        blocks: IntArray,
    ) -> TierAttention | None:
        """Attention over the blocks that lie in `tier`, rows without any left out."""
        width = int(blocks.max(initial=0))
        columns = np.arange(width)
        here = (self._rows.block_tiers[rows, :width] == tier) & (columns < blocks[:, None])
        per_row = here.sum(axis=1)
        chosen = np.flatnonzero(per_row)
        if len(chosen) == 0:
            return None
        here, per_row = here[chosen], per_row[chosen]
        order = np.argsort(~here, axis=1, kind="stable")[:, : int(per_row.max())]
        present: NDArray[np.bool_] = np.arange(order.shape[1]) < per_row[:, None]
        table = np.take_along_axis(self._rows.block_ids[rows[chosen], :width], order, axis=1)
        part_counts = counts[chosen]
        part_starts = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum(part_counts, out=part_starts[1:])
        tokens = None
        if len(chosen) != len(rows):
            tokens = np.concatenate(
                [np.arange(starts[i], starts[i + 1], dtype=np.int64) for i in chosen.tolist()]
            )
        return TierAttention(
            token_index=tokens,
            query_start=part_starts,
            num_decode=int(np.count_nonzero(chosen < num_decode)),
            positions=positions if tokens is None else positions[tokens],
            block_table=np.where(present, table, 0).astype(np.int32),
            block_index=np.where(present, order, FAR).astype(np.int32),
        )

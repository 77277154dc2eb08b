"""Turn rows and token counts into a lane's arrays."""

from array import array
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LaneBinding, LongArray, TierAppend
from tandem.scheduler.attention_builder import AttentionBuilder, LaneTokens
from tandem.scheduler.row_set import RowSet
from tandem.scheduler.rows import RowTable
from tandem.scheduler.steady_lane import BuiltLane, SteadyLane
from tandem.spec.tier import TIERS, Tier

_SPARE_BLOCKS = 4


class LaneBuilder:
    """Builds bindings from the row table, which it only reads.

    Args:
        tokens_of: known tokens of a row's sequence.
    """

    def __init__(
        self, rows: RowTable, block_size: int, tokens_of: Callable[[int], "array[int]"]
    ) -> None:
        self._rows = rows
        self._size = block_size
        self._tokens_of = tokens_of
        self._attention = AttentionBuilder(rows, block_size)
        self._steady: SteadyLane | None = None

    def main(self, decode: LongArray, chunks: list[tuple[int, int]]) -> BuiltLane:
        """The main lane: `decode` rows with one token each and `chunks` of (row, tokens).

        Blocks for the new tokens must have been allocated. Chunks of one token are decodes here.
        """
        if chunks:
            self._steady = None
            return self._build(self._tokens(decode, chunks))
        following = None if self._steady is None else self._steady.next(decode)
        if following is not None:
            return following
        built = self._build(self._decodes(decode), _SPARE_BLOCKS)
        follows = SteadyLane.follows(built)
        self._steady = SteadyLane(self._rows, self._size, built) if follows else None
        return built

    def cohort(self, members: LongArray) -> BuiltLane:
        """The lane of a new cohort: one token of each member, whose blocks have been allocated."""
        return self._build(self._decodes(members))

    def _build(self, tokens: LaneTokens, spare_blocks: int = 0) -> BuiltLane:
        at = tokens.rows
        reaches = self._reaches_end(at, tokens.counts)
        rows = RowSet(self._rows, at)
        binding = LaneBinding(
            rows=rows.places,
            token_ids=self._token_ids(at, tokens),
            token_rows=tokens.token_rows,
            positions=tokens.positions,
            attention=self._attention.build(at, tokens, spare_blocks),
            append=self._append(tokens.token_rows, tokens.positions),
            logits_index=(tokens.starts[1:] - 1)[reaches].astype(np.int64),
        )
        sampled = rows if reaches.all() else rows.some(reaches.nonzero()[0])
        return BuiltLane(binding, rows, self._rows.submitted[at] + tokens.counts, sampled)

    def _decodes(self, rows: LongArray) -> LaneTokens:
        starts = np.arange(len(rows) + 1, dtype=np.int32)
        ones = np.ones(len(rows), dtype=np.int32)
        return LaneTokens(rows, ones, starts, rows, self._rows.submitted[rows], len(rows))

    def _tokens(self, decode: LongArray, chunks: list[tuple[int, int]]) -> LaneTokens:
        singles = [row for row, count in chunks if count == 1]
        longer = [(row, count) for row, count in chunks if count > 1]
        first = np.concatenate([decode, np.array(singles, dtype=np.int64)])
        rows = np.concatenate([first, np.array([row for row, _ in longer], dtype=np.int64)])
        counts = np.ones(len(rows), dtype=np.int32)
        counts[len(first) :] = [count for _, count in longer]
        starts = np.zeros(len(rows) + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        token_rows = np.repeat(rows, counts)
        positions = self._positions(rows, counts, starts)
        return LaneTokens(rows, counts, starts, token_rows, positions, len(first))

    def _positions(self, rows: LongArray, counts: IntArray, starts: IntArray) -> IntArray:
        offsets = np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], counts)
        return np.repeat(self._rows.submitted[rows], counts) + offsets

    def _token_ids(self, at: LongArray, tokens: LaneTokens) -> LongArray:
        """Known ids from the host; -1 where the last sampled id is in the device's slot table."""
        r = self._rows
        ids = np.full(tokens.starts[-1], -1, dtype=np.int64)
        from_host = ~r.on_device[at]
        from_host[tokens.num_decode :] = True
        for i in from_host.nonzero()[0].tolist():
            row, count, start = int(at[i]), int(tokens.counts[i]), int(tokens.starts[i])
            begin = int(r.submitted[row])
            known = min(count, int(r.known[row]) - begin)
            ids[start : start + known] = self._tokens_of(row)[begin : begin + known]
        return ids

    def _reaches_end(self, at: LongArray, counts: IntArray) -> NDArray[np.bool_]:
        """Rows of which no token is left to compute after this step: they sample the next."""
        r = self._rows
        return r.submitted[at] + counts == r.known[at] + r.pending[at]

    def _append(self, token_rows: LongArray, positions: IntArray) -> dict[Tier, TierAppend]:
        r, size = self._rows, self._size
        index, offset = np.divmod(positions, size)
        slots = r.block_ids[token_rows, index].astype(np.int64) * size + offset
        if not r.num_host_blocks[token_rows].any():
            return {Tier.DEVICE: TierAppend(None, slots)}
        tiers = r.block_tiers[token_rows, index]
        found: dict[Tier, TierAppend] = {}
        for tier in TIERS:
            where = np.flatnonzero(tiers == int(tier))
            if len(where) == len(tiers):
                return {tier: TierAppend(None, slots)}
            if len(where):
                found[tier] = TierAppend(where, slots[where])
        return found

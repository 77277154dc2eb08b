"""Turn rows and token counts into a lane's arrays."""

from array import array
from collections.abc import Callable

import numpy as np

from tandem.plan.binding import LaneBinding, LongArray, TierAppend
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
        at, r = tokens.rows, self._rows
        # no token of theirs is left to compute after this step: they sample the next
        reaches = tokens.after == r.known[at] + r.pending[at]
        rows = RowSet(r, at)
        binding = LaneBinding(
            rows=rows.places,
            token_ids=self._token_ids(at, tokens),
            token_rows=tokens.token_rows,
            positions=tokens.positions,
            attention=self._attention.build(at, tokens, spare_blocks),
            append=self._append(tokens),
            logits_index=(tokens.starts[1:] - 1)[reaches].astype(np.int64),
        )
        sampled = rows if reaches.all() else rows.some(reaches.nonzero()[0])
        return BuiltLane(binding, rows, tokens.after, sampled)

    def _decodes(self, rows: LongArray) -> LaneTokens:
        starts = np.arange(len(rows) + 1, dtype=np.int32)
        ones = np.ones(len(rows), dtype=np.int32)
        before, hosted = self._rows.submitted[rows], self._hosted(rows)
        return LaneTokens(rows, ones, starts, before, before + 1, rows, before, len(rows), hosted)

    def _hosted(self, rows: LongArray) -> bool:
        return bool(self._rows.num_host_blocks[rows].any())

    def _tokens(self, decode: LongArray, chunks: list[tuple[int, int]]) -> LaneTokens:
        singles = [row for row, count in chunks if count == 1]
        longer = [(row, count) for row, count in chunks if count > 1]
        num_decode = len(decode) + len(singles)
        others = np.array(singles + [row for row, _ in longer], dtype=np.int64)
        rows = np.concatenate([decode, others])
        counts = np.ones(len(rows), dtype=np.int32)
        counts[num_decode:] = [count for _, count in longer]
        starts = np.zeros(len(rows) + 1, dtype=np.int32)
        counts.cumsum(out=starts[1:])
        before = self._rows.submitted[rows]
        positions = np.arange(starts[-1], dtype=np.int32) + (before - starts[:-1]).repeat(counts)
        return LaneTokens(
            rows,
            counts,
            starts,
            before,
            before + counts,
            rows.repeat(counts),
            positions,
            num_decode,
            self._hosted(rows),
        )

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

    def _append(self, tokens: LaneTokens) -> dict[Tier, TierAppend]:
        r, size, token_rows = self._rows, self._size, tokens.token_rows
        index, offset = np.divmod(tokens.positions, size)
        slots = r.block_ids[token_rows, index].astype(np.int64) * size + offset
        if not tokens.hosted:
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

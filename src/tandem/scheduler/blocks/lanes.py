"""Turn a block's sequences into lanes: a token of each row of a batch, or some rows' prompts."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tandem.plan.binding import IntArray, LaneBinding, LongArray, TierAppend, TierAttention
from tandem.plan.offline import OfflinePlan
from tandem.plan.passing import PassingKV, RecomputedPrefix
from tandem.plan.program import LaneSlot
from tandem.scheduler.blocks.places import BlockPlaces, KVHome
from tandem.scheduler.rows import FAR
from tandem.scheduler.sequence import Sequence
from tandem.spec.tier import Tier

_NO_TOKENS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """A lane's tokens, ordered by row.

    Attributes:
        rows: int64 [rows]; those with one token first. counts: int32 [rows]; tokens of each.
        positions: int32 [tokens].
    """

    rows: LongArray
    counts: IntArray
    positions: IntArray

    @property
    def token_rows(self) -> LongArray:
        """int64 [tokens]."""
        return np.repeat(self.rows, self.counts)

    @property
    def ends(self) -> LongArray:
        """Of each row, the place after its last token: int64 [rows]."""
        return np.cumsum(self.counts, dtype=np.int64)

    def of(self, chosen: LongArray) -> LongArray:
        """Tokens of some rows, given by their places here, ascending: int64 [t]."""
        return np.flatnonzero(np.isin(np.repeat(np.arange(len(self.rows)), self.counts), chosen))


class BlockLanes:
    """Builds lanes from the places of a block; reads only.

    Args:
        sequence_of: the sequence in a row.
    """

    def __init__(
        self, plan: OfflinePlan, places: BlockPlaces, sequence_of: Callable[[int], Sequence]
    ) -> None:
        self._plan, self._places = plan, places
        self._size = plan.block_size
        self._sequence_of = sequence_of

    # --- decoding ---------------------------------------------------------------------------------

    def tokens(self, batch: int) -> LaneSlot:
        """The last token of each of a batch's rows; perhaps none."""
        rows = self._places.members(batch)
        positions = (self._places.rows.known[rows] - 1).astype(np.int32)
        tokens = _Tokens(rows, np.ones(len(rows), dtype=np.int32), positions)
        ids = [self._sequence_of(row).tokens[-1] for row in rows.tolist()]
        streamed = self._with_home(tokens, KVHome.STREAMED)
        passing = self._streamed(tokens, streamed) if len(streamed) else None
        return LaneSlot(self._binding(tokens, ids), batch + 1, passing=passing)

    def _streamed(self, tokens: _Tokens, chosen: LongArray) -> PassingKV:
        places, size = self._places, self._size
        rows, at = tokens.rows[chosen], tokens.positions[chosen]
        made = places.made[rows]
        # the new token's block is the last that is there; it may come without it
        count = at // size + 1 - made
        local = np.arange(int(count.max(initial=0)))
        block = at // size
        logical = made[:, None] + local
        attention = self._paged(
            tokens,
            chosen,
            places.slot_blocks[rows, : len(local)],
            logical if made.any() else None,
        )
        slots = places.slot_blocks[rows, block - made].astype(np.int64) * size + at % size
        there = local < count[:, None]
        host = np.take_along_axis(places.rows.block_ids[rows], np.where(there, logical, 0), axis=1)
        index = attention.token_index
        stored = places.rows.block_ids[rows, block].astype(np.int64) * size + at % size
        return PassingKV(
            attention=attention,
            append=TierAppend(index, slots),
            slot_blocks=places.slot_blocks[rows, : len(local)][there],
            host_blocks=host[there],
            stored=TierAppend(index, stored),
            prefix=self._recomputed(tokens, chosen[made > 0]),
            pinned_blocks=self._plan.pinned_host_blocks,
        )

    def _recomputed(self, tokens: _Tokens, chosen: LongArray) -> RecomputedPrefix | None:
        if not len(chosen):
            return None
        places, size = self._places, self._size
        rows = tokens.rows[chosen]
        made = places.made[rows].astype(np.int64)
        local = np.arange(int(made.max()))
        # blocks of what a batch recomputes: each row has as many as the plan allows
        table = places.index[rows][:, None] * (self._plan.recomputed_tokens // size) + local
        there = local < made[:, None]
        offsets = _ranges(made * size)
        blocks = np.repeat(table[there].astype(np.int64), size)
        return RecomputedPrefix(
            entries=self._entries(rows, made * size),
            tokens=_NO_TOKENS,
            positions=offsets.astype(np.int32),
            slots=blocks * size + offsets % size,
            attention=self._paged(
                tokens, chosen, table.astype(np.int32), np.where(there, local, FAR)
            ),
        )

    def _entries(self, rows: LongArray, counts: LongArray) -> LongArray:
        """Places in the host's store of the rows' first tokens."""
        places, plan = self._places, self._plan
        number = places.batch[rows].astype(np.int64) * plan.streamed_rows + places.index[rows]
        return np.repeat(number * plan.recomputed_tokens, counts) + _ranges(counts)

    # --- prompts ----------------------------------------------------------------------------------

    def prompts(self, rows: LongArray, part: int) -> LaneSlot:
        """All known tokens of some rows, as one of the parts of a program over prompts."""
        known = self._places.rows.known[rows]
        rows = rows[np.argsort(known != 1, kind="stable")]
        counts = self._places.rows.known[rows].astype(np.int32)
        tokens = _Tokens(rows, counts, _ranges(counts.astype(np.int64)).astype(np.int32))
        ids = [token for row in rows.tolist() for token in self._sequence_of(row).tokens]
        draining = np.flatnonzero(self._places.home[rows] != int(KVHome.RESIDENT))
        passing = self._draining(tokens, draining) if len(draining) else None
        return LaneSlot(self._binding(tokens, ids, prompts=True), part + 1, passing=passing)

    def _draining(self, tokens: _Tokens, chosen: LongArray) -> PassingKV:
        """Prompts whose KV goes to the host: one after the other in a slot."""
        places, size = self._places, self._size
        rows = tokens.rows[chosen]
        blocks = -(-tokens.counts[chosen] // size)
        first = np.cumsum(blocks) - blocks
        local = np.arange(int(blocks.max()))
        table = (first[:, None] + local).astype(np.int32)
        attention = self._paged(tokens, chosen, table, None)
        index = attention.token_index
        at = attention.positions
        by_token = np.repeat(first.astype(np.int64), tokens.counts[chosen])
        stays = (local >= places.made[rows][:, None]) & (local < blocks[:, None])
        return PassingKV(
            attention=attention,
            append=TierAppend(index, by_token * size + at),
            slot_blocks=table[stays],
            host_blocks=places.rows.block_ids[rows, : len(local)][stays],
            prefix=self._kept_activations(tokens, chosen[places.made[rows] > 0]),
            pinned_blocks=self._plan.pinned_host_blocks,
        )

    def _kept_activations(self, tokens: _Tokens, chosen: LongArray) -> RecomputedPrefix | None:
        if not len(chosen):
            return None
        rows = tokens.rows[chosen]
        kept = self._places.made[rows].astype(np.int64) * self._size
        first = (tokens.ends - tokens.counts)[chosen]
        offsets = _ranges(kept)
        return RecomputedPrefix(
            entries=self._entries(rows, kept),
            tokens=np.repeat(first, kept) + offsets,
            positions=offsets.astype(np.int32),
            slots=_NO_TOKENS,
            attention=None,
        )

    # --- both -------------------------------------------------------------------------------------

    def _binding(self, tokens: _Tokens, ids: list[int], *, prompts: bool = False) -> LaneBinding:
        """A lane with the parts whose KV stays in one memory; prompts attend on the accelerator."""
        attention, append = dict[Tier, TierAttention](), dict[Tier, TierAppend]()
        homes = {Tier.DEVICE: KVHome.RESIDENT} | ({} if prompts else {Tier.HOST: KVHome.CPU})
        for tier, home in homes.items():
            chosen = self._with_home(tokens, home)
            if len(chosen):
                attention[tier], append[tier] = self._staying(tokens, chosen)
        return LaneBinding(
            rows=tokens.rows.astype(np.int32),
            token_ids=np.array(ids, dtype=np.int64),
            token_rows=tokens.token_rows,
            positions=tokens.positions,
            attention=attention,
            append=append,
            logits_index=tokens.ends - 1,
        )

    def _staying(self, tokens: _Tokens, chosen: LongArray) -> tuple[TierAttention, TierAppend]:
        ids, size = self._places.rows.block_ids, self._size
        last = tokens.positions[tokens.ends[chosen] - 1]
        table = ids[tokens.rows[chosen], : int(last.max()) // size + 1]
        attention = self._paged(tokens, chosen, table, None)
        rows = np.repeat(tokens.rows[chosen], tokens.counts[chosen])
        index, offset = np.divmod(attention.positions, size)
        return attention, TierAppend(
            attention.token_index, ids[rows, index].astype(np.int64) * size + offset
        )

    def _paged(
        self,
        tokens: _Tokens,
        chosen: LongArray,
        table: IntArray,
        logical: LongArray | None,
    ) -> TierAttention:
        """Attention of the chosen rows over blocks of `table`, with these logical numbers."""
        counts = tokens.counts[chosen]
        starts = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum(counts, out=starts[1:])
        whole = len(chosen) == len(tokens.rows)
        index = None if whole else tokens.of(chosen)
        return TierAttention(
            token_index=index,
            query_start=starts,
            num_decode=int(np.count_nonzero(counts == 1)),
            positions=tokens.positions if index is None else tokens.positions[index],
            block_table=table,
            block_index=None if logical is None else logical.astype(np.int32),
        )

    def _with_home(self, tokens: _Tokens, home: KVHome) -> LongArray:
        """Places in `tokens` of the rows with a home: int64 [n], ascending."""
        return np.flatnonzero(self._places.home[tokens.rows] == int(home))


def _ranges(counts: LongArray) -> LongArray:
    """0 to each count (exclusive), one after the other: int64 [sum]."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts, counts)

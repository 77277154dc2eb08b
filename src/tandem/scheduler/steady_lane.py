"""Decodes of the same rows step after step: each lane follows from the one before it."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LaneBinding, LongArray, TierAppend, TierAttention
from tandem.scheduler.kept import Kept
from tandem.scheduler.row_set import RowSet, same_rows
from tandem.scheduler.rows import RowTable
from tandem.spec.tier import Tier

_Scalar = TypeVar("_Scalar", bound=np.generic)
_NEXT_SLOT, _NEXT_POSITION = np.array(1, dtype=np.int64), np.array(1, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class BuiltLane:
    """A lane's arrays, and what the scheduler records of them.

    Attributes:
        rows: as in the binding. after: int32 [rows]; their submitted tokens after this step.
        sampled: rows that reach their end in this step, in the order of `logits_index`.
    """

    binding: LaneBinding
    rows: RowSet
    after: IntArray
    sampled: RowSet


class SteadyLane:
    """Goes on from a lane of decodes that all sample: only rows that begin a block need a look.

    Block tables are shared by the steps: what is written into them for a row lies beyond the
    positions of all steps before, which do not read it.

    Args:
        built: the first lane; its tables may be wider than needed, for blocks to come.
    """

    def __init__(self, table: RowTable, block_size: int, built: BuiltLane) -> None:
        self._table, self._size = table, block_size
        self._last = built
        self._age = 0
        self._slots = _all_slots(built)

    @staticmethod
    def follows(built: BuiltLane) -> bool:
        """Whether another step may follow from this one: all rows will have a token by then."""
        return built.sampled is built.rows and built.rows.late is None

    def next(self, decode: LongArray) -> BuiltLane | None:
        """The lane of the next step; None if it does not follow from the last one."""
        last, rows = self._last, self._last.rows
        if not rows.current or not same_rows(decode, rows.rows):
            return None
        positions, slots = last.after, self._slots + _NEXT_SLOT
        same = self._table.submitted[rows.index] == positions
        if np.count_nonzero(same) < len(same):
            return None
        self._age += 1
        turned = self._turned()
        if len(turned) and not self._turn(turned, positions, slots):
            return None
        self._slots = slots
        binding = LaneBinding(
            rows=rows.places,
            token_ids=self._sampled_ids,
            token_rows=rows.rows,
            positions=positions,
            attention={
                tier: _with_positions(part, positions)
                for tier, part in last.binding.attention.items()
            },
            append={
                tier: TierAppend(part.token_index, _select(slots, part.token_index))
                for tier, part in last.binding.append.items()
            },
            logits_index=rows.everywhere,
        )
        self._last = BuiltLane(binding, rows, positions + _NEXT_POSITION, rows)
        return self._last

    @Kept
    def _sampled_ids(self) -> LongArray:
        return np.full(len(self._last.rows), -1, dtype=np.int64)

    @Kept
    def _by_turn(self) -> list[LongArray]:
        """Places of the rows that begin a block, by the lane's age modulo the block size."""
        age = -(self._last.after - 1) % self._size
        order = np.argsort(age, kind="stable")
        bounds = np.searchsorted(age[order], np.arange(self._size + 1)).tolist()
        return [order[bounds[i] : bounds[i + 1]] for i in range(self._size)]

    def _turned(self) -> LongArray:
        return self._by_turn[self._age % self._size]

    def _turn(self, turned: LongArray, positions: IntArray, slots: LongArray) -> bool:
        """Bring in the blocks that the rows at places `turned` begin.

        Returns: False if a table would have to be made anew.
        """
        t, rows = self._table, self._last.rows.rows[turned]
        number = positions[turned] // self._size
        tiers = t.block_tiers[rows, number]
        if np.count_nonzero(tiers != t.block_tiers[rows, number - 1]):
            return False
        slots[turned] = t.block_ids[rows, number].astype(np.int64) * self._size
        for tier, part in self._last.binding.attention.items():
            chosen = tiers == int(tier)
            if not np.count_nonzero(chosen):
                continue
            if not self._extend(tier, part, turned[chosen], rows[chosen]):
                return False
        return True

    def _extend(self, tier: Tier, part: TierAttention, places: LongArray, rows: LongArray) -> bool:
        """Write the rows' blocks of a tier anew, if its table is wide enough."""
        t, width = self._table, part.block_table.shape[1]
        if part.block_index is None:
            if int(t.num_blocks[rows].max()) > width:
                return False
            part.block_table[places] = t.block_ids[rows, :width]
            return True
        if int(t.num_in_tier(tier, rows).max()) > width:
            return False
        if part.token_index is not None:
            places = part.token_index.searchsorted(places)
        part.block_table[places] = t.tier_ids[tier, rows, :width]
        part.block_index[places] = t.tier_index[tier, rows, :width]
        return True


def _all_slots(built: BuiltLane) -> LongArray:
    """Where each token's K and V go, in its tier: int64 [tokens]."""
    slots = np.empty(len(built.rows), dtype=np.int64)
    for part in built.binding.append.values():
        slots[slice(None) if part.token_index is None else part.token_index] = part.slots
    return slots


def _with_positions(part: TierAttention, positions: IntArray) -> TierAttention:
    return TierAttention(
        part.token_index,
        part.query_start,
        part.num_decode,
        _select(positions, part.token_index),
        part.block_table,
        part.block_index,
    )


def _select(values: NDArray[_Scalar], index: LongArray | None) -> NDArray[_Scalar]:
    return values if index is None else values[index]

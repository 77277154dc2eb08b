"""The row table: everything about running sequences that a step touches, as columns."""

import copy
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LongArray
from tandem.spec.tier import TIERS, Tier

MAX_STOP_IDS = 8
MAX_RECENT = 128  # above the usual block: whoever publishes a full block empties them in time
UNLIMITED = np.iinfo(np.int32).max
FAR = 1 << 20
"""Logical number of no block: beyond any position, so that causality drops it."""


class RowState(IntEnum):
    """What may happen to a row."""

    FREE = 0
    RUNNING = 1
    DRAINING = 2  # preempted: not scheduled, waits for its operations in flight
    SWAPPING_OUT = 3
    SWAPPED = 4
    SWAPPING_IN = 5
    RETURNING = 6  # its first tokens are computed again while the others' KV is copied to it


# To find members of enumerations, and to convert numbers of Python, takes longer at each use than a
# comparison of some hundred rows does.
_RUNNING, _RETURNING = RowState.RUNNING, RowState.RETURNING
_IS_RUNNING = np.array(int(_RUNNING), dtype=np.int8)
_IS_RETURNING = np.array(int(_RETURNING), dtype=np.int8)
_NONE, _ONE = np.array(0, dtype=np.int32), np.array(1, dtype=np.int32)


class Runnable(NamedTuple):
    """Rows with a token to compute.

    Attributes:
        decodes: int64; rows with one, ascending. prefills: rows with more, in order of rank.
    """

    decodes: LongArray
    prefills: LongArray


class RowTable:
    """Columns indexed by row; a row is a running sequence's slot, also in the device's slot table.

    A steady decode step is a handful of vector operations on these columns, whatever the number of
    rows. Arrays of rows are int64: numpy converts any other index at each use.

    Token counts: `known` tokens have values on the host, `pending` more are sampled on the device
    but not reported, `submitted` have had their KV computation submitted, `computed` have it
    complete in every layer.

    Attributes:
        version: raised whenever a row changes its owner, or blocks that it has are others.
        state: of each row; changed by `enter` alone, which counts them.
        epoch: raised when a row is freed, so that late events of its last owner are recognised.
        order: rank of admission; smaller goes first (priority, then arrival).
        limit: most tokens of prompt and output together.
        device_limit: leading blocks that lie on the device; later ones go to the host.
        leaves: the prompt is read on the device, and all blocks go to the host after that.
        upto: tokens that may be submitted; of a row that returns, those that are computed again.
        arriving: blocks of the device that a copy under way will fill, of a row that returns.
        on_device: the last known or pending token is in the device's slot table.
        cohort: id of the cohort the row is in, 0 for none.
        last_step: last submitted step that names the row's blocks.
        published: leading blocks already offered to the prefix cache.
        stop_ids: int64 [MAX_STOP_IDS, rows], as tokens are; unused ones are -1 and come last.
            num_stop_ids: most that any row has had.
        cached: prompt tokens taken from the prefix cache at first admission.
        overtaken: how often, since `tokens_before` tokens were known (`Overtaking`).
        recent: last known tokens that the row's sequence does not have yet, `num_recent` of them;
            whoever reads a sequence's tokens brings them over first (`Running.sequence_of`).
        block_ids, block_tiers: [rows, max_blocks]; a row's blocks in logical order.
        tier_ids, tier_index: int32 [tiers, rows, max_blocks]; the same blocks by tier: ids, and
            their logical numbers, ascending, then FAR. Kept up with every change, since most rows'
            tables are the same in the next step.
        special: sampling needs more than temperature and filters (bias, bans, penalties).
        request_ids: owners; stale in free rows.
        had_late, had_careful: whether any row ever was `late`, or wanted log-probabilities or had
            `many_stops`: most tables need not be asked.
    """

    def __init__(self, max_rows: int, max_blocks: int) -> None:
        def ints() -> IntArray:
            return np.zeros(max_rows, dtype=np.int32)

        self.max_rows = max_rows
        self.version = 0
        self.state: NDArray[np.int8] = np.zeros(max_rows, dtype=np.int8)
        self._num_in_state = [0] * len(RowState)
        self._num_in_state[RowState.FREE] = max_rows
        self.epoch = ints()
        self.order: LongArray = np.zeros(max_rows, dtype=np.int64)
        self.known, self.pending, self.submitted, self.computed = ints(), ints(), ints(), ints()
        self.limit, self.prompt, self.min_total = ints(), ints(), ints()
        self.num_blocks, self.num_host_blocks, self.device_limit = ints(), ints(), ints()
        self.published, self.cohort, self.arriving = ints(), ints(), ints()
        self.upto: IntArray = np.full(max_rows, UNLIMITED, dtype=np.int32)
        self.cached, self.num_recent = ints(), ints()
        self.overtaken, self.tokens_before = ints(), ints()
        self.recent: IntArray = np.zeros((max_rows, MAX_RECENT), dtype=np.int32)
        self.last_step: LongArray = np.full(max_rows, -1, dtype=np.int64)
        self.on_device: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.late: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.leaves: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.block_ids: IntArray = np.zeros((max_rows, max_blocks), dtype=np.int32)
        self.block_tiers: NDArray[np.int8] = np.zeros((max_rows, max_blocks), dtype=np.int8)
        by_tier = (len(TIERS), max_rows, max_blocks)
        self.tier_ids: IntArray = np.zeros(by_tier, dtype=np.int32)
        self.tier_index: IntArray = np.full(by_tier, FAR, dtype=np.int32)
        self.stop_ids: LongArray = np.full((MAX_STOP_IDS, max_rows), -1, dtype=np.int64)
        self.num_stop_ids = 0
        self.had_late = self.had_careful = False
        self.seed: NDArray[np.uint64] = np.zeros(max_rows, dtype=np.uint64)
        self.temperature: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self.top_p: NDArray[np.float32] = np.ones(max_rows, dtype=np.float32)
        self.min_p: NDArray[np.float32] = np.zeros(max_rows, dtype=np.float32)
        self.top_k = ints()
        self.logprobs: NDArray[np.int8] = np.full(max_rows, -1, dtype=np.int8)
        self.special: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.many_stops: NDArray[np.bool_] = np.zeros(max_rows, dtype=np.bool_)
        self.request_ids: NDArray[np.object_] = np.full(max_rows, "", dtype=np.object_)
        self._free = list(range(max_rows - 1, -1, -1))

    def read_only(self) -> "RowTable":
        """The same table, columns and all, through which nothing can be changed."""
        table = copy.copy(self)
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                view = cast("NDArray[np.generic]", column).view()
                view.flags.writeable = False
                setattr(table, name, view)
        return table

    @property
    def num_free(self) -> int:
        """Rows without an owner."""
        return len(self._free)

    def take(self) -> int:
        """Give a free row to a new owner."""
        row = self._free[-1]
        self.enter(row, RowState.RUNNING)
        self._free.pop()
        self.version += 1
        for column in (self.pending, self.submitted, self.computed, self.num_blocks):
            column[row] = 0
        for column in (self.num_host_blocks, self.published, self.cohort, self.num_recent):
            column[row] = 0
        self.upto[row], self.arriving[row] = UNLIMITED, 0
        self.last_step[row] = -1
        self.on_device[row] = False
        return row

    def free(self, row: int) -> None:
        """Take a row back; events that still name it are void by its epoch."""
        self.enter(row, RowState.FREE)
        self.epoch[row] += 1
        self.version += 1
        self._free.append(row)

    def enter(self, row: int, state: RowState) -> None:
        """Change what may happen to a row."""
        number = int(state)  # numpy looks for arrays in any other number
        self._num_in_state[self.state[row]] -= 1
        self._num_in_state[number] += 1
        self.state[row] = number

    def count(self, state: RowState) -> int:
        """Rows in a state."""
        return self._num_in_state[state]

    def owned(self) -> LongArray:
        """All rows with an owner."""
        return self.state.nonzero()[0]

    def runnable(self) -> Runnable:
        """Rows with a token to compute now, outside cohorts; those that return are among the
        longer ones, whatever is left of them.

        A row whose last allowed token is sampled has none; a row whose sampling waits for the host
        has none until then.
        """
        target = self.known + self.pending
        left = target - self.submitted
        ready = (self.state == _IS_RUNNING) & (self.cohort == _NONE)
        ready &= target < self.limit
        rows = (ready & (left > _NONE)).nonzero()[0]
        single = left[rows] == _ONE
        if np.count_nonzero(single) == len(rows):
            singles, longer = rows, rows[:0]
        else:
            singles, longer = rows[single], rows[~single]
        if self._num_in_state[_RETURNING]:
            again = (self.state == _IS_RETURNING) & (self.submitted < self.upto)
            longer = np.concatenate((longer, again.nonzero()[0]))
        if len(longer):
            longer = longer[self.order[longer].argsort(kind="stable")]
        return Runnable(singles, longer)

    def growing(self, block_size: int) -> NDArray[np.bool_]:
        """Of all rows, those that run and may still begin a block; the last token needs no KV."""
        running = self.state == int(RowState.RUNNING)
        return running & (self.num_blocks * block_size < self.limit - 1)

    def set_stop_ids(self, row: int, token_ids: Iterable[int]) -> None:
        """Tokens that end a row's sequence; what has no place is told by `many_stops`."""
        ids = sorted(token_ids)
        kept = ids[:MAX_STOP_IDS]
        self.stop_ids[:, row] = -1
        self.stop_ids[: len(kept), row] = kept
        self.many_stops[row] = len(ids) > MAX_STOP_IDS
        self.num_stop_ids = max(self.num_stop_ids, len(kept))

    def remaining(self, rows: LongArray) -> IntArray:
        """Tokens known or pending whose KV is not submitted, and may be: int32 [len(rows)]."""
        target = np.minimum(self.known[rows] + self.pending[rows], self.upto[rows])
        return target - self.submitted[rows]

    def reaches_end(self, row: int) -> bool:
        """Whether the last of a row's `remaining` tokens gives logits to sample the next from."""
        return bool(self.upto[row] == UNLIMITED)

    def drained(self, row: int) -> bool:
        """True if nothing in flight concerns the row."""
        return bool(
            self.pending[row] == 0
            and self.computed[row] == self.submitted[row]
            and self.cohort[row] == 0
        )

    # --- blocks -----------------------------------------------------------------------------------

    def extend_blocks(self, row: int, tier: Tier, blocks: Sequence[int] | IntArray) -> None:
        """Add blocks at the end of one row's KV."""
        at, held = int(self.num_blocks[row]), int(self.num_host_blocks[row])
        end, place = at + len(blocks), held if tier is Tier.HOST else at - held
        last, number = place + len(blocks), int(tier)
        self.block_ids[row, at:end] = blocks
        self.block_tiers[row, at:end] = number
        self.tier_ids[number, row, place:last] = blocks
        self.tier_index[number, row, place:last] = np.arange(at, end)
        self.num_blocks[row] = end
        if tier is Tier.HOST:
            self.num_host_blocks[row] = last

    def append_blocks(self, rows: LongArray, tier: Tier, blocks: IntArray) -> None:
        """Add one block at the end of the KV of each of some rows."""
        at = self.num_blocks[rows]
        held = self.num_host_blocks[rows]
        place, number = held if tier is Tier.HOST else at - held, int(tier)
        self.block_ids[rows, at] = blocks
        self.block_tiers[rows, at] = number
        self.tier_ids[number, rows, place] = blocks
        self.tier_index[number, rows, place] = at
        self.num_blocks[rows] = at + 1
        if tier is Tier.HOST:
            self.num_host_blocks[rows] = held + 1

    def gather_blocks(self, row: int, target: Tier, blocks: IntArray) -> None:
        """All of a row's blocks of the other tier have moved: they are `blocks` of `target` now."""
        count = int(self.num_blocks[row])
        moved = np.flatnonzero(self.block_tiers[row, :count] != int(target))
        self.block_ids[row, moved] = blocks
        self.block_tiers[row, :count] = target
        self.num_host_blocks[row] = count if target is Tier.HOST else 0
        self.tier_index[:, row, :count] = FAR
        self.tier_ids[target, row, :count] = self.block_ids[row, :count]
        self.tier_index[target, row, :count] = np.arange(count)
        self.version += 1

    def drop_blocks(self, row: int) -> None:
        """A row has no blocks any more."""
        self.tier_index[:, row, : int(self.num_blocks[row])] = FAR
        self.num_blocks[row] = self.num_host_blocks[row] = 0

    def num_in_tier(self, tier: Tier, rows: LongArray) -> IntArray:
        """Blocks of each of `rows` in a tier."""
        host = self.num_host_blocks[rows]
        return host if tier is Tier.HOST else self.num_blocks[rows] - host

    def blocks(self, row: int, tier: Tier) -> IntArray:
        """A row's block ids in one tier, in logical order."""
        count, held = int(self.num_blocks[row]), int(self.num_host_blocks[row])
        if held in (0, count):  # all of them lie in one tier
            return self.block_ids[row, : count if (held > 0) == (tier is Tier.HOST) else 0].copy()
        return self.block_ids[row, :count][self.block_tiers[row, :count] == int(tier)]

"""What strategies may look at: facts, no way to change them (contract 13)."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tandem.memory.prefix_cache import CachedBlock
from tandem.plan.binding import LongArray
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.kv_manager import NO_BLOCKS, BlockNeed
from tandem.scheduler.proposal import no_rows
from tandem.scheduler.rows import UNLIMITED, RowState, RowTable, Runnable
from tandem.scheduler.sequence import Sequence

if TYPE_CHECKING:
    from tandem.scheduler.cohort import Cohort
    from tandem.scheduler.fetching import FetchRule
    from tandem.scheduler.turn import Turn

_NO_DUES: Mapping[str, float] = MappingProxyType({})
_NONE = np.array(0, dtype=np.int32)


class KVFacts(Protocol):
    """What may be asked about KV memory."""

    def total(self) -> BlockNeed:
        """Blocks of both pools."""
        ...

    def free(self) -> BlockNeed:
        """Blocks that can be allocated now."""
        ...

    def returning(self) -> BlockNeed:
        """Leased blocks: they come free when the steps that name them end."""
        ...

    def growth(self, row: int, num_tokens: int) -> BlockNeed:
        """Blocks a row must get to hold `num_tokens` more."""
        ...

    def needs_block(self, rows: LongArray) -> LongArray:
        """Those of `rows` whose next token starts a block that they do not have yet."""
        ...

    def one_block_each(self, rows: LongArray) -> BlockNeed:
        """Blocks that rows take which must get one each."""
        ...

    def matched(self, sequence: Sequence, device_limit: int) -> list[CachedBlock]:
        """Cached blocks that a waiting request would start with."""
        ...

    def matched_across(self, sequence: Sequence) -> list[CachedBlock]:
        """Likewise once those on the host have been brought to the device."""
        ...

    def arriving(self, entries: list[CachedBlock]) -> bool:
        """Whether the content of some of these is on its way to the device already."""
        ...

    def num_arriving(self) -> int:
        """Blocks on their way to the device."""
        ...

    def admission_need(
        self, sequence: Sequence, matched: list[CachedBlock], device_limit: int, num_tokens: int
    ) -> BlockNeed:
        """Blocks that a waiting request takes from the free ones."""
        ...


class SchedulerView(NamedTuple):
    """A moment of the scheduler's state, open to questions only.

    Attributes:
        rows: not writable.
        waiting: accepted requests without a row that wait for nothing but one, in the order in
            which they should get one.
        cohorts: by id.
        idle: nothing is in flight, so nothing will change without a new step.
        runnable: rows with a token to compute, outside cohorts.
        behind: rows that read prompts, too, but after the first `num_before_them` of those who wait
            have begun.
        most_prompt_tokens: that a step should read.
        dues: of waiting requests whose first tokens are wanted in time, by id: when that is, in
            seconds from the begin of a step that is proposed now.
        waits_for_device: whether a waiting request would not start on the host, were there room for
            it, while others lie on the accelerator; those behind it that may then do.
        is_left_out: whether a waiting request that started on the host would be left out of what
            is proposed in the end, and all behind it with it.
        weighs_times: whether the strategy weighs by predicted times who lies on the host.
        next_step: id of the program that would come next; ids ascend (`RowTable.last_step`).
        last_way: of the last step's proposal. turn: how it was chosen, if that may be kept to.
        filling: blocks that are being filled for the prefix cache, and free then.
        fetching: when a prefix that the host has cached is brought to the device; None: never.
    """

    config: SchedulerConfig
    rows: RowTable
    kv: KVFacts
    waiting: Iterable[Sequence]
    cohorts: "Mapping[int, Cohort]"
    idle: bool
    runnable: Runnable
    next_step: int = 0
    last_way: str = ""
    filling: BlockNeed = NO_BLOCKS
    fetching: "FetchRule | None" = None
    behind: LongArray = no_rows()
    num_before_them: int = 0
    most_prompt_tokens: int = UNLIMITED
    dues: Mapping[str, float] = _NO_DUES
    waits_for_device: Callable[[Sequence], bool] | None = None
    is_left_out: Callable[[Sequence], bool] | None = None
    weighs_times: bool = False
    turn: "Turn | None" = None

    @property
    def free(self) -> BlockNeed:
        """Blocks that can be allocated now."""
        return self.kv.free()

    def hosted(self, rows: LongArray) -> NDArray[np.bool_]:
        """Which of some rows have blocks on the host."""
        return self.rows.num_host_blocks[rows] > _NONE

    def in_state(self, state: RowState) -> LongArray:
        """Rows in one state, in order of rank."""
        if not self.rows.count(state):
            return no_rows()
        return self.by_rank((self.rows.state == int(state)).nonzero()[0])

    def by_rank(self, rows: LongArray) -> LongArray:
        """Rows sorted so that who goes first comes first."""
        return rows[self.rows.order[rows].argsort(kind="stable")] if len(rows) > 1 else rows

    def needs_block(self, rows: LongArray) -> LongArray:
        """Those of `rows` whose next token starts a block that they do not have yet."""
        return self.kv.needs_block(rows)

    def growth(self, row: int, num_tokens: int) -> BlockNeed:
        """Blocks a row must get to hold `num_tokens` more."""
        return self.kv.growth(row, num_tokens)

    def one_block_each(self, rows: LongArray) -> BlockNeed:
        """Blocks that rows take which must get one each."""
        return self.kv.one_block_each(rows)

    def device_blocks(self, row: int) -> int:
        """Blocks of a row on the device, those that are on their way there included."""
        r = self.rows
        return int(r.num_blocks[row] - r.num_host_blocks[row] + r.arriving[row])

    def returning(self) -> BlockNeed:
        """Blocks that come free when operations or drains under way end."""
        need = self.kv.returning().plus(self.filling)
        for state in (RowState.DRAINING, RowState.SWAPPING_OUT):
            for row in self.in_state(state):
                host = int(self.rows.num_host_blocks[row])
                keeps_host = state is RowState.SWAPPING_OUT
                need = need.plus(BlockNeed(self.device_blocks(int(row)), 0 if keeps_host else host))
        return need

    def matched(self, sequence: Sequence, device_limit: int) -> list[CachedBlock]:
        """Cached blocks that a waiting request would start with."""
        return self.kv.matched(sequence, device_limit)

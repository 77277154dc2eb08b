"""Who gives up memory for a row that lacks it: rows behind it, the last ones first."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.rows import RowState
from tandem.scheduler.view import SchedulerView

_SWAPPED = RowState.SWAPPED


class Lacking(NamedTuple):
    """A row that lacks memory.

    Attributes:
        needs: each of which would let it go on.
    """

    view: SchedulerView
    row: int
    needs: tuple[BlockNeed, ...]

    def who_gives_way(
        self, free: BlockNeed, preempted: Collection[int], is_chosen: Callable[[int], bool]
    ) -> list[int]:
        """Rows behind it to be preempted, until what is coming free covers one of its needs: first
        those that lose nothing by it, as the host has their KV.

        Args:
            free: of what may be allocated, that nobody has been promised.
            preempted: rows that are preempted in any case.
            is_chosen: whether something is proposed of a row that is not to be undone.
        """
        coming = self.view.returning().plus(free)
        for other in preempted:
            coming = coming.plus(self._held(other))
        found: list[int] = []
        for state in (_SWAPPED, RowState.RETURNING, RowState.RUNNING):
            for other in self.view.in_state(state)[::-1].tolist():
                if any(need.fits(coming) for need in self.needs):
                    return found
                may = other not in preempted and self._is_behind(other)
                may = may and (state is _SWAPPED or not is_chosen(other))
                if may and self._helps(other, coming):
                    found.append(other)
                    coming = coming.plus(self._held(other))
        return found

    def _is_behind(self, other: int) -> bool:
        order = self.view.rows.order
        return bool(order[other] > order[self.row])

    def _helps(self, other: int, coming: BlockNeed) -> bool:
        """A swapped row has host blocks only; they are no use to a row that lacks device blocks."""
        held = self._held(other)
        return any(
            (need.device > coming.device and held.device > 0)
            or (need.host > coming.host and held.host > 0)
            for need in self.needs
        )

    def _held(self, row: int) -> BlockNeed:
        return BlockNeed(self.view.device_blocks(row), int(self.view.rows.num_host_blocks[row]))

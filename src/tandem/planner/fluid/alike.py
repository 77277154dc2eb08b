"""Groups of a schedule that recur, since layers are alike."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from tandem.plan.program import Queue
from tandem.planner.fluid.groups import QUEUE_INDEX, QUEUES, Group, Schedule

_LEAST_PERIODS = 4
"""One until nothing of what came before is left, one that is looked at, and some to be gained."""


class Alike(NamedTuple):
    """A part of a schedule in which each group is the one a period before, at the same cost.

    Attributes:
        begin, end: its places in `Schedule.groups`; `end` is the first one after it.
        period: groups that recur together. per_queue: how many of them are on each queue.
        marks: places of one in each period; when that one is all that runs, what comes may be as it
            was after the mark before.
    """

    begin: int
    end: int
    period: int
    per_queue: tuple[int, ...]
    marks: frozenset[int]

    def periods_after(self, mark: int, ahead: Mapping[int, int]) -> int:
        """How many periods may follow that are like the one before a mark.

        Args:
            ahead: by queue, how many places its next group is after the mark. The same held of the
                mark before; a queue that is not in it has none left, and has run ahead.
        """
        queues = {queue for queue, groups in enumerate(self.per_queue) if groups}
        places = [mark, *(mark + places for places in ahead.values())]
        if queues - ahead.keys() or min(places) - self.period < self.begin:
            return 0
        return max(0, (self.end - 1 - max(places)) // self.period)


def alike_groups(schedule: Schedule) -> Alike | None:
    """What recurs around the middle of a schedule, with the shortest period; None: nothing does
    for long, or nothing in which the accelerator waits for others.

    Nothing in it joins, raises a signal or means anything to the scheduler.
    """
    count = len(schedule.groups)
    for period in range(1, count // _LEAST_PERIODS + 1):
        begin = end = count // 2
        per_queue = _per_queue(schedule.groups[begin : begin + period])
        while begin > 0 and _recurs(schedule, begin - 1, period, per_queue):
            begin -= 1
        while end + period < count and _recurs(schedule, end, period, per_queue):
            end += 1
        end += period
        if end - begin >= _LEAST_PERIODS * period:
            marks = _marks(schedule.groups[begin : begin + period])
            return (
                Alike(
                    begin, end, period, per_queue, frozenset(range(begin + marks[0], end, period))
                )
                if marks
                else None
            )
    return None


def _recurs(schedule: Schedule, place: int, period: int, per_queue: tuple[int, ...]) -> bool:
    """Whether the group a period after a place is the same again."""
    one, other = schedule.groups[place], schedule.groups[place + period]
    if not (_is_plain(one) and _is_plain(other)) or one.queue != other.queue:
        return False
    waits = tuple((queue, value + per_queue[queue]) for queue, value in one.waits)
    return (
        schedule.cost_of[place] == schedule.cost_of[place + period]
        and other.place == one.place + per_queue[one.queue]
        and other.waits == waits
    )


def _is_plain(group: Group) -> bool:
    """Whether it concerns its own schedule alone, and nobody is told of it."""
    within = all(value > 0 for _, value in group.waits)
    return within and group.event is None and group.joins is None and group.raises is None


def _per_queue(groups: Collection[Group]) -> tuple[int, ...]:
    queues = [group.queue for group in groups]
    return tuple(queues.count(queue) for queue in range(len(QUEUES)))


def _marks(groups: Collection[Group]) -> list[int]:
    """The accelerator's that wait for others: before them, most has ended."""
    accelerator = QUEUE_INDEX[Queue.ACCEL]
    return [i for i, group in enumerate(groups) if group.queue == accelerator and group.waits]

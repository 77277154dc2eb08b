"""Queues in virtual time: groups of operations run in order, and share what they use at once.

What several groups use at once is *fluid*: a group's speed falls when the others' shares leave
less. The host's memory is one pool for the CPU's work and both directions of the link; of the link
to the accelerator, small copies go before streamed weights. Time moves from one start or end to
the next, whoever asks and however often, so that equal submissions give equal times to the bit.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.plan.program import Queue
from tandem.planner.schedule import QUEUES, Schedule

ACCEL, H2D, D2H, CPU, WEIGHTS, DISK = (
    QUEUES.index(queue)
    for queue in (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.CPU, Queue.WEIGHTS, Queue.DISK)
)
NEVER = float("inf")
_ROUNDING_S = 1e-15


class Work(NamedTuple):
    """What a group asks for.

    Attributes:
        alone_s: duration if nothing else runs.
        dram_bytes_per_s: of the host's memory, while it runs at full speed.
        link_share: of its direction of the link, likewise; at most 1.
    """

    alone_s: float
    dram_bytes_per_s: float = 0.0
    link_share: float = 0.0


@dataclass(slots=True)
class Join:
    """A group's wait for a cohort's attention.

    Attributes:
        count: groups that the CPU's queue must have ended, counted from the beginning of time.
        max_wait_s: once all else is there; after it, the lane is left out. None: no bound.
    """

    lane: int
    count: int
    max_wait_s: float | None
    deadline_s: float | None = None


@dataclass(slots=True, eq=False)
class Submission:
    """A schedule on its way through the queues.

    Attributes:
        price: the works of all groups, given the lanes that are left out.
        not_before_s: no group starts earlier.
        joins: by group; a group that joins and is not in it waits for all that the CPU was given
            before.
        reported: groups whose ends are of interest; that of the last one to end always is.
        left_out: lanes whose joins were refused.
        label: whatever the owner wants to find again.
    """

    schedule: Schedule
    price: Callable[[frozenset[int]], Sequence[Work]]
    not_before_s: float = 0.0
    joins: Mapping[int, Join] = field(default_factory=dict[int, Join])
    reported: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    label: object = None
    works: Sequence[Work] = ()
    groups_left: int = 0


class Ended(NamedTuple):
    """A reported group, or the last one of a submission, has ended."""

    submission: Submission
    group: int
    complete: bool


class Span(NamedTuple):
    """When a group ran."""

    queue: int
    start_s: float
    end_s: float
    submission: Submission
    group: int


_Entry = tuple[Submission, int, tuple[tuple[int, int], ...]]


class FluidQueues:
    """Event by event: start what can start, find who ends first, move everyone there.

    Args:
        dram_bytes_per_s: of the host's memory.
        on_span: told of every group that ended.

    Attributes:
        now_s: the last start or end that has been reached.
        busy_s: how long each queue has been busy, by its index; loads count as h2d where no copy
            runs.
        dram_bytes: moved in the host's memory.
        hidden_s: how long the CPU has been busy beside the accelerator.
    """

    def __init__(
        self, dram_bytes_per_s: float, on_span: Callable[[Span], None] | None = None
    ) -> None:
        count = len(QUEUES)
        self.now_s = self.dram_bytes = self.hidden_s = 0.0
        self.busy_s = [0.0] * count
        self._dram, self._on_span = dram_bytes_per_s, on_span
        self._waiting: list[deque[_Entry]] = [deque() for _ in QUEUES]
        self._submitted, self._done = [0] * count, [0] * count
        self._left, self._started_s = [0.0] * count, [0.0] * count
        self._current: list[Work | None] = [None] * count
        self._entry: list[_Entry | None] = [None] * count
        self._active: list[int] = []

    @property
    def submitted(self) -> tuple[int, ...]:
        """Groups submitted so far, by queue: what a submission's places are counted from."""
        return tuple(self._submitted)

    def submit(self, submission: Submission) -> None:
        """Append a schedule's groups to their queues."""
        base = tuple(self._submitted)
        groups = submission.schedule.groups
        submission.works = submission.price(submission.left_out)
        submission.groups_left = len(groups)
        for index, group in enumerate(groups):
            waits = [(queue, base[queue] + value) for queue, value in group.waits]
            if group.joins is not None and index not in submission.joins:
                waits.append((CPU, base[CPU]))
            self._waiting[group.queue].append((submission, index, tuple(waits)))
            self._submitted[group.queue] += 1

    def advance(self, until_s: float = NEVER) -> list[Ended]:
        """Go on to the next moment at which something that is reported ends.

        Returns: what ended then; nothing if nothing does up to `until_s`, or ever.
        """
        ended: list[Ended] = []
        while not ended:
            wake_s = self._start()
            speeds, dram_rate = _speeds(self._active, self._current, self._dram)
            step_s, next_s = self._next(speeds, wake_s)
            if next_s > until_s or next_s == NEVER:
                return ended
            self._pass(step_s, next_s, speeds, dram_rate, ended)
        return ended

    def _start(self) -> float:
        """Start what can start; returns when a group that waits only for time will be able to."""
        wake_s, current, done = NEVER, self._current, self._done
        for q, waiting in enumerate(self._waiting):
            if current[q] is not None or not waiting:
                continue
            entry = waiting[0]
            submission, index, waits = entry
            for queue, value in waits:
                if done[queue] < value:
                    break
            else:
                ready_s = submission.not_before_s
                if ready_s <= self.now_s and submission.joins and index in submission.joins:
                    ready_s = self._joined_s(submission, submission.joins[index])
                if ready_s > self.now_s:
                    wake_s = min(wake_s, ready_s)
                    continue
                waiting.popleft()
                work = submission.works[index]
                current[q], self._entry[q] = work, entry
                self._left[q], self._started_s[q] = work.alone_s, self.now_s
                self._active.append(q)
        return wake_s

    def _joined_s(self, submission: Submission, join: Join) -> float:
        """When the wait for a cohort is over, as far as only time decides it."""
        if self._done[CPU] >= join.count:
            return self.now_s
        if join.max_wait_s is None:
            return NEVER
        if join.deadline_s is None:
            join.deadline_s = self.now_s + join.max_wait_s
        if self.now_s >= join.deadline_s:
            submission.left_out |= {join.lane}
            submission.works = submission.price(submission.left_out)
        return join.deadline_s

    def _next(self, speeds: list[float], wake_s: float) -> tuple[float, float]:
        """Seconds to the next start or end, and when it is."""
        step_s = NEVER
        for q, speed in zip(self._active, speeds, strict=True):
            if speed:
                step_s = min(step_s, self._left[q] / speed)
        if wake_s - self.now_s < step_s:
            return wake_s - self.now_s, wake_s
        return step_s, self.now_s + step_s

    def _pass(
        self,
        step_s: float,
        next_s: float,
        speeds: list[float],
        dram_rate: float,
        ended: list[Ended],
    ) -> None:
        current, left, busy = self._current, self._left, self.busy_s
        self.now_s = next_s
        self.dram_bytes += dram_rate * step_s
        if current[CPU] is not None and current[ACCEL] is not None:
            self.hidden_s += step_s
        loads_only = current[H2D] is None
        over: list[int] = []
        for q, speed in zip(self._active, speeds, strict=True):
            busy[H2D if q == WEIGHTS and loads_only else q] += step_s
            left[q] -= speed * step_s
            if left[q] <= _ROUNDING_S:
                over.append(q)
        for q in over:
            self._end(q, ended)
        if over:
            self._active = [q for q in self._active if current[q] is not None]

    def _end(self, q: int, ended: list[Ended]) -> None:
        entry = self._entry[q]
        assert entry is not None
        submission, index, _ = entry
        self._current[q] = self._entry[q] = None
        self._done[q] += 1
        submission.groups_left -= 1
        complete = submission.groups_left == 0
        if complete or index in submission.reported:
            ended.append(Ended(submission, index, complete))
        if self._on_span is not None:
            self._on_span(Span(q, self._started_s[q], self.now_s, submission, index))


def _speeds(
    active: list[int], current: list[Work | None], capacity: float
) -> tuple[list[float], float]:
    """Of the groups under way, relative to alone, and what they draw from the host's memory."""
    speeds = [1.0] * len(active)
    demand = 0.0
    for i, q in enumerate(active):
        work = current[q]
        assert work is not None
        if q == WEIGHTS:
            copy = current[H2D]
            if copy is not None:
                speeds[i] = max(0.0, 1.0 - copy.link_share)
        demand += speeds[i] * work.dram_bytes_per_s
    if demand <= capacity:
        return speeds, demand
    slower = capacity / demand
    for i, q in enumerate(active):
        work = current[q]
        assert work is not None
        if work.dram_bytes_per_s:
            speeds[i] *= slower
    return speeds, capacity

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
        after: lane with which this one is left out.
    """

    lane: int
    count: int
    max_wait_s: float | None
    after: int | None = None
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
        base: by queue, groups submitted to it before; places and waits are counted from it.
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
    base: Sequence[int] = ()


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


_Line = tuple[Submission, tuple[int, ...]]
"""A submission, and its groups on one queue."""


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
        self._submitted, self._done = [0] * count, [0] * count
        self._waiting: list[deque[_Line]] = [deque() for _ in QUEUES]
        self._place = [0] * count  # of the next group in the first line
        # what the next group is known to wait for: a queue, and how far that must come
        self._blocked_on, self._blocked_until = [0] * count, [0] * count
        self._running: list[tuple[Submission, int] | None] = [None] * count
        self._work = [Work(0.0)] * count
        self._left, self._started_s = [0.0] * count, [0.0] * count
        self._active: list[int] = []

    @property
    def submitted(self) -> tuple[int, ...]:
        """Groups submitted so far, by queue: what a submission's places are counted from."""
        return tuple(self._submitted)

    def submit(self, submission: Submission) -> None:
        """Append a schedule's groups to their queues."""
        submission.base = self.submitted
        submission.works = submission.price(submission.left_out)
        submission.groups_left = len(submission.schedule.groups)
        for queue, groups in enumerate(submission.schedule.by_queue):
            if groups:
                self._waiting[queue].append((submission, groups))
                self._submitted[queue] += len(groups)

    def advance(self, until_s: float = NEVER) -> list[Ended]:
        """Go on to the next moment at which something that is reported ends.

        Returns: what ended then; nothing if nothing does up to `until_s`, or ever.
        """
        ended: list[Ended] = []
        while not ended:
            wake_s = self._start()
            drawn, speeds = self._speeds()
            step_s, next_s = self._next(speeds, wake_s)
            if next_s > until_s or next_s == NEVER:
                return ended
            self._pass(step_s, speeds, drawn)
            self.now_s = next_s
            self._end_all(ended)
        return ended

    # --- starts -----------------------------------------------------------------------------------

    def _start(self) -> float:
        """Start what can start; returns when a group that waits only for time will be able to."""
        wake_s, running, done = NEVER, self._running, self._done
        for q, waiting in enumerate(self._waiting):
            if running[q] is not None or not waiting:
                continue
            if done[self._blocked_on[q]] < self._blocked_until[q]:
                continue
            submission, groups = waiting[0]
            index = groups[self._place[q]]
            if self._is_blocked(q, submission, index):
                continue
            ready_s = submission.not_before_s
            if ready_s <= self.now_s and submission.joins and index in submission.joins:
                ready_s = self._joined_s(submission, submission.joins[index])
            if ready_s > self.now_s:
                wake_s = min(wake_s, ready_s)
                continue
            self._begin(q, submission, index)
        return wake_s

    def _is_blocked(self, q: int, submission: Submission, index: int) -> bool:
        """Whether another queue has not come far enough; if so, which is remembered."""
        group, base, done = submission.schedule.groups[index], submission.base, self._done
        for queue, value in group.waits:
            if done[queue] < base[queue] + value:
                self._blocked_on[q], self._blocked_until[q] = queue, base[queue] + value
                return True
        if group.joins is not None and index not in submission.joins and done[CPU] < base[CPU]:
            self._blocked_on[q], self._blocked_until[q] = CPU, base[CPU]
            return True
        return False

    def _begin(self, q: int, submission: Submission, index: int) -> None:
        waiting = self._waiting[q]
        self._place[q] += 1
        if self._place[q] == len(waiting[0][1]):
            waiting.popleft()
            self._place[q] = 0
        self._running[q] = submission, index
        work = self._work[q] = submission.works[index]
        self._left[q], self._started_s[q] = work.alone_s, self.now_s
        self._active.append(q)

    def _joined_s(self, submission: Submission, join: Join) -> float:
        """When the wait for a cohort is over, as far as only time decides it."""
        if join.after in submission.left_out:
            return self._refuse(submission, join)
        if self._done[CPU] >= join.count:
            return self.now_s
        if join.max_wait_s is None:
            return NEVER
        if join.deadline_s is None:
            join.deadline_s = self.now_s + join.max_wait_s
        if self.now_s >= join.deadline_s:
            return self._refuse(submission, join)
        return join.deadline_s

    def _refuse(self, submission: Submission, join: Join) -> float:
        """The cohort does not join; the sweep goes on without it."""
        if join.lane not in submission.left_out:
            submission.left_out |= {join.lane}
            submission.works = submission.price(submission.left_out)
        return self.now_s

    # --- the time between -------------------------------------------------------------------------

    def _speeds(self) -> tuple[float, list[float] | None]:
        """What the groups under way draw from the host's memory, and how fast each is relative to
        alone; None: as fast.
        """
        active, work = self._active, self._work
        if self._running[WEIGHTS] is not None and self._running[H2D] is not None:
            share = max(0.0, 1.0 - work[H2D].link_share)
            speeds = [share if q == WEIGHTS else 1.0 for q in active]
            drawn = 0.0
            for q, speed in zip(active, speeds, strict=True):
                drawn += speed * work[q].dram_bytes_per_s
        else:
            speeds, drawn = None, 0.0
            for q in active:
                drawn += work[q].dram_bytes_per_s
        if drawn <= self._dram:
            return drawn, speeds
        slower = self._dram / drawn
        speeds = [1.0] * len(active) if speeds is None else speeds
        for i, q in enumerate(active):
            if work[q].dram_bytes_per_s:
                speeds[i] *= slower
        return self._dram, speeds

    def _next(self, speeds: list[float] | None, wake_s: float) -> tuple[float, float]:
        """Seconds to the next start or end, and when it is."""
        step_s, left = NEVER, self._left
        if speeds is None:
            for q in self._active:
                if left[q] < step_s:
                    step_s = left[q]
        else:
            for q, speed in zip(self._active, speeds, strict=True):
                if speed:
                    step_s = min(step_s, left[q] / speed)
        if wake_s - self.now_s < step_s:
            return wake_s - self.now_s, wake_s
        return step_s, self.now_s + step_s

    def _pass(self, step_s: float, speeds: list[float] | None, drawn: float) -> None:
        running, left, busy = self._running, self._left, self.busy_s
        self.dram_bytes += drawn * step_s
        if running[CPU] is not None and running[ACCEL] is not None:
            self.hidden_s += step_s
        for i, q in enumerate(self._active):
            busy[H2D if q == WEIGHTS and running[H2D] is None else q] += step_s
            left[q] -= step_s if speeds is None else speeds[i] * step_s

    # --- ends -------------------------------------------------------------------------------------

    def _end_all(self, ended: list[Ended]) -> None:
        left = self._left
        over = [q for q in self._active if left[q] <= _ROUNDING_S]
        if over:
            self._active = [q for q in self._active if left[q] > _ROUNDING_S]
            for q in over:
                self._end(q, ended)

    def _end(self, q: int, ended: list[Ended]) -> None:
        running = self._running[q]
        assert running is not None
        submission, index = running
        self._running[q] = None
        self._done[q] += 1
        submission.groups_left -= 1
        complete = submission.groups_left == 0
        if complete or index in submission.reported:
            ended.append(Ended(submission, index, complete))
        if self._on_span is not None:
            self._on_span(Span(q, self._started_s[q], self.now_s, submission, index))

"""Queues in virtual time: groups of operations run in order, and share what they use at once.

What several groups use at once is *fluid*: a group's speed falls when the others' shares leave
less. The host's memory is one pool for the CPU's work and both directions of the link; of the link
to the accelerator, small copies go before streamed weights, and its two directions may slow each
other down. Time moves from one start or end to
the next, whoever asks and however often, so that equal submissions give equal times to the bit.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tandem.plan.cohort_chain import CohortChain
from tandem.plan.program import Queue
from tandem.planner.fluid.groups import QUEUES, Schedule
from tandem.profiling.shared_link import APART

if TYPE_CHECKING:
    from tandem.planner.fluid.alike import Alike
    from tandem.planner.fluid.moments import Moments

ACCEL, H2D, D2H, CPU, WEIGHTS, DISK = (
    QUEUES.index(queue)
    for queue in (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.CPU, Queue.WEIGHTS, Queue.DISK)
)
NEVER = float("inf")
_ON_LINK = (H2D, D2H, WEIGHTS)
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
        attention: cohort and number of what it waits for, if what it follows may be refused.
    """

    lane: int
    count: int
    max_wait_s: float | None
    attention: tuple[int, int] | None = None
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
        alike: groups that recur, none of them reported: where one period leaves the queues as it
            found them, those after it are not gone through group by group.
        base: by queue, groups submitted to it before; places and waits are counted from it.
    """

    schedule: Schedule
    price: Callable[[frozenset[int]], Sequence[Work]]
    not_before_s: float = 0.0
    joins: Mapping[int, Join] = field(default_factory=dict[int, Join])
    reported: frozenset[int] = frozenset()
    left_out: frozenset[int] = frozenset()
    label: object = None
    alike: "Alike | None" = None
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


class Place(NamedTuple):
    """How far queues have come in what was submitted to them.

    Attributes:
        ahead: by queue, groups that have not ended.
        left_s: by queue, what is left of the group under way, alone; 0: there is none.
    """

    ahead: tuple[int, ...]
    left_s: tuple[float, ...]


_Line = tuple[Submission, tuple[int, ...]]
"""A submission, and its groups on one queue."""


class FluidQueues:
    """Event by event: start what can start, find who ends first, move everyone there.

    Planning and simulating spend most of their time in `advance` and `_start`, so each of these
    does its work in one loop, without a call for each group.

    Args:
        dram_bytes_per_s: of the host's memory.
        on_span: told of every group that ended.
        both_ways: shares of the link that its directions have at once, in sum.

    Attributes:
        now_s: the last start or end that has been reached.
        busy_s: how long each queue has been busy, by its index; loads count as h2d where no copy
            runs.
        dram_bytes: moved in the host's memory.
        hidden_s: how long the CPU has been busy beside the accelerator.
        chain: attentions of cohorts that are coming.
    """

    def __init__(
        self,
        dram_bytes_per_s: float,
        on_span: Callable[[Span], None] | None = None,
        *,
        both_ways: float = APART,
    ) -> None:
        count = len(QUEUES)
        self.now_s = self.dram_bytes = self.hidden_s = 0.0
        self.chain = CohortChain()
        self.busy_s = [0.0] * count
        self._dram, self._on_span = dram_bytes_per_s, on_span
        self._both_ways, self._meet = both_ways, both_ways < APART
        self._submitted, self._done = [0] * count, [0] * count
        self._waiting: list[deque[_Line]] = [deque() for _ in QUEUES]
        self._place = [0] * count  # of the next group in the first line
        # queues whose next group may be able to start, or waits for time alone
        self._look: list[int] = []
        # by queue, who waits for it: how far it must come, and whose next group that is
        self._watching: list[list[tuple[int, int]]] = [[] for _ in QUEUES]
        self._running: list[tuple[Submission, int] | None] = [None] * count
        # of the group under way: seconds left alone, bytes per second, share of the link
        self._left, self._rate, self._share = [0.0] * count, [0.0] * count, [0.0] * count
        self._started_s = [0.0] * count
        self._active: list[int] = []
        # a mark that has just begun; what went by since the one before, if that was all that ran
        self._mark: tuple[Submission, Alike, int] | None = None
        self._moments: Moments | None = None

    @property
    def submitted(self) -> tuple[int, ...]:
        """Groups submitted so far, by queue: what a submission's places are counted from."""
        return tuple(self._submitted)

    @property
    def place(self) -> Place:
        """Where the queues are; in equal places, equal submissions take equally long."""
        ahead = tuple(a - b for a, b in zip(self._submitted, self._done, strict=True))
        running = zip(self._left, self._running, strict=True)
        return Place(ahead, tuple(left if run else 0.0 for left, run in running))

    def submit(self, submission: Submission, first: int = 0) -> None:
        """Append a schedule's groups to their queues.

        Args:
            first: place of the first group that is not done yet; above 0 only before anything else
                is submitted.
        """
        self._moments = None
        submission.base = self.submitted
        submission.works = submission.price(submission.left_out)
        submission.groups_left = len(submission.schedule.groups) - first
        for queue, groups in enumerate(submission.schedule.by_queue):
            done = bisect_left(groups, first) if first else 0
            self._done[queue] += done
            self._submitted[queue] += len(groups)
            if len(groups) > done:
                if not self._waiting[queue] and self._running[queue] is None:
                    self._look.append(queue)
                self._waiting[queue].append((submission, groups[done:]))

    def advance(self, until_s: float = NEVER) -> list[Ended]:
        """Go on to the next moment at which something that is reported ends.

        Returns: what ended then; nothing if nothing does up to `until_s`, or ever.
        """
        ended: list[Ended] = []
        running, left, rate, busy = self._running, self._left, self._rate, self.busy_s
        active, done, waiting = self._active, self._done, self._waiting
        watching, on_span = self._watching, self._on_span
        while not ended:
            wake_s = self._start() if self._look else NEVER
            if self._mark is not None:
                self._repeat(until_s, *self._mark)
            drawn, step_s, speeds = 0.0, NEVER, None
            for q in active:
                drawn += rate[q]
                if left[q] < step_s:
                    step_s = left[q]
            on_link = running[WEIGHTS] is not None and running[H2D] is not None
            if self._meet and running[D2H] is not None:
                on_link |= running[WEIGHTS] is not None or running[H2D] is not None
            if on_link or drawn > self._dram:
                drawn, step_s, speeds = self._shared_out()
            next_s = self.now_s + step_s
            if wake_s - self.now_s < step_s:
                step_s, next_s = wake_s - self.now_s, wake_s
            if next_s > until_s or next_s == NEVER:
                return ended
            # let time go by
            self.dram_bytes += drawn * step_s
            if running[CPU] is not None and running[ACCEL] is not None:
                self.hidden_s += step_s
            loads = WEIGHTS if running[H2D] is not None else H2D
            if self._moments is not None:
                self._note(self._moments, step_s, drawn, loads)
            over: list[int] = []
            for i, q in enumerate(active):
                busy[q if q != WEIGHTS else loads] += step_s
                left[q] -= step_s if speeds is None else speeds[i] * step_s
                if left[q] <= _ROUNDING_S:
                    over.append(q)
            self.now_s = next_s
            # end what is over
            for q in over:
                run = running[q]
                assert run is not None
                submission, index = run
                active.remove(q)
                running[q] = None
                done[q] += 1
                if waiting[q]:
                    self._look.append(q)
                if watching[q]:
                    self._wake(q)
                submission.groups_left -= 1
                complete = submission.groups_left == 0
                if complete or index in submission.reported:
                    ended.append(Ended(submission, index, complete))
                if on_span is not None:
                    on_span(Span(q, self._started_s[q], next_s, submission, index))
        return ended

    def _wake(self, q: int) -> None:
        """Look at those that a queue has come far enough for."""
        done, watching, self._watching[q] = self._done[q], self._watching[q], []
        for until, waiting in watching:
            if done >= until:
                self._look.append(waiting)
            else:
                self._watching[q].append((until, waiting))

    # --- starts -----------------------------------------------------------------------------------

    def _start(self) -> float:
        """Start what can start; returns when a group that waits only for time will be able to."""
        wake_s, done, now_s = NEVER, self._done, self.now_s
        waiting, place = self._waiting, self._place
        looked, self._look = self._look, []
        if len(looked) > 1:
            looked.sort()
        for q in looked:
            line = waiting[q]
            submission, groups = line[0]
            at = place[q]
            index = groups[at]
            base, schedule = submission.base, submission.schedule
            for queue, value in schedule.waits[index]:
                if done[queue] < base[queue] + value:
                    self._watching[queue].append((base[queue] + value, q))
                    break
            else:
                ready_s = submission.not_before_s
                if index in schedule.joining and ready_s <= now_s:
                    ready_s = self._joined_s(q, submission, index)
                if ready_s <= now_s:
                    at += 1
                    if at == len(groups):
                        line.popleft()
                        at = 0
                    place[q] = at
                    self._running[q] = submission, index
                    self._left[q], self._rate[q], self._share[q] = submission.works[index]
                    self._started_s[q] = now_s
                    self._active.append(q)
                    alike = submission.alike
                    if alike is not None and index in alike.marks:
                        self._mark = submission, alike, index
                elif ready_s < NEVER:  # else it waits for others
                    self._look.append(q)
                    wake_s = min(wake_s, ready_s)
        return wake_s

    def _joined_s(self, q: int, submission: Submission, index: int) -> float:
        """When the wait for a cohort is over, as far as only time decides it; NEVER: the queue is
        looked at again when the CPU has come so far.
        """
        join = submission.joins.get(index)
        if join is None:  # all that the CPU was given before
            join = Join(-1, submission.base[CPU], None)
        if join.attention is not None and self.chain.is_broken(*join.attention):
            return self._refuse(submission, join)
        if self._done[CPU] >= join.count:
            if join.attention is not None:
                self.chain.joined(*join.attention)
            return self.now_s
        if join.max_wait_s is None:
            self._watching[CPU].append((join.count, q))
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

    # --- layers that are alike --------------------------------------------------------------------

    def _note(self, moments: "Moments", step_s: float, drawn: float, loads: int) -> None:
        """Time goes by."""
        hidden = self._running[CPU] is not None and self._running[ACCEL] is not None
        busy = [q if q != WEIGHTS else loads for q in self._active]
        moments.add(step_s, drawn * step_s, busy, hidden=hidden)

    def _repeat(self, until_s: float, submission: Submission, alike: "Alike", index: int) -> None:
        """A mark has begun. If the one before it left the queues as they are now, the same sums are
        done again, in the same order, for as many periods as are like that one.
        """
        self._mark, before = None, self._moments
        self._moments = now = self._moments_from(submission, index)
        if before is None or now is None or before.standing != now.standing:
            return
        if before.place + alike.period != index:
            return
        most = alike.periods_after(index, now.standing.ahead)
        count, self.now_s = before.until(self.now_s, until_s, most)
        self.dram_bytes = before.dram_bytes(count, self.dram_bytes)
        self.hidden_s = before.hidden_s(count, self.hidden_s)
        self.busy_s[:] = before.busy_s(count, self.busy_s)
        for q, groups in enumerate(alike.per_queue):
            self._done[q] += count * groups
            self._place[q] += count * groups
            self._watching[q] = [(end + count * groups, who) for end, who in self._watching[q]]
        self._running[self._active[0]] = submission, index + count * alike.period
        submission.groups_left -= count * alike.period
        self._moments = None  # there is nothing more to be gained

    def _moments_from(self, submission: Submission, index: int) -> "Moments | None":
        """To note what goes by from now on; None if others have a part in it, or want spans."""
        if len(self._active) > 1 or self._look or self._on_span is not None:
            return None
        from tandem.planner.fluid.moments import Moments, Standing

        ahead: dict[int, int] = {}
        for q, line in enumerate(self._waiting):
            if line and line[0][0] is not submission:
                return None
            if line:
                ahead[q] = line[0][1][self._place[q]] - index
        watching = tuple(
            tuple([(end - done, who) for end, who in those])
            for those, done in zip(self._watching, self._done, strict=True)
        )
        return Moments(Standing(submission, ahead, watching), index)

    # --- the time between -------------------------------------------------------------------------

    def _shared_out(self) -> tuple[float, float, list[float]]:
        """What the groups under way draw from the host's memory, seconds until one of them ends,
        and how fast each is relative to alone.
        """
        active, rate, left = self._active, self._rate, self._left
        loads, link = self._link_speeds()
        drawn, speeds = 0.0, list[float]()
        for q in active:
            speed = 1.0
            if q in _ON_LINK:
                speed = loads * link if q == WEIGHTS else link
            speeds.append(speed)
            drawn += speed * rate[q]
        slower = 1.0
        if drawn > self._dram:
            slower, drawn = self._dram / drawn, self._dram
        step_s = NEVER
        for i, q in enumerate(active):
            speed = speeds[i]
            if rate[q]:
                speed *= slower
                speeds[i] = speed
            if speed and left[q] / speed < step_s:
                step_s = left[q] / speed
        return drawn, step_s, speeds

    def _link_speeds(self) -> tuple[float, float]:
        """Of loads, which small copies go before; and of all on the link, whose directions have no
        more than `both_ways` at once.
        """
        share, running = self._share, self._running
        copies = share[H2D] if running[H2D] else 0.0
        loads = 1.0 - copies if copies < 1.0 else 0.0
        if not (self._meet and running[D2H]):
            return loads, 1.0
        up, down = copies + (loads * share[WEIGHTS] if running[WEIGHTS] else 0.0), share[D2H]
        if up and down and up + down > self._both_ways:
            return loads, self._both_ways / (up + down)
        return loads, 1.0

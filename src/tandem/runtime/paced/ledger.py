"""Ledgers of deadlines: when every operation of the paced emulator starts and ends.

Device queues are arithmetic: `start = max(queue free, dependencies, submission + launch)` and
`end = start + cost`. An operation's deadline is known as soon as those of its dependencies are; the
host's operations are real work, and theirs are the stamps that the worker gives. The ledger has no
clock and no thread: it is told the time where a bounded wait needs it.
"""

import math
from collections import deque
from dataclasses import dataclass

from tandem.plan.block_shape import AHEAD_COPIES
from tandem.plan.cohort_chain import CohortChain
from tandem.plan.disk_slots import SLOTS
from tandem.plan.program import LaneSlot, ProgramOp, Queue
from tandem.plan.weights import STREAM_SLOTS
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.paced.shared_link import SharedLink
from tandem.runtime.paced.timeline import Timeline

_LOOKED_BACK = max(STREAM_SLOTS, SLOTS, AHEAD_COPIES)
DEVICE_QUEUES = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS, Queue.DISK)


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation in flight."""

    op: ProgramOp
    program: PacedProgram


@dataclass(frozen=True, slots=True)
class Span:
    """An operation whose start and end are known."""

    entry: Entry
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class HostTask:
    """A host operation whose dependencies are known.

    Attributes:
        not_before_s: when they end, which may lie ahead.
    """

    entry: Entry
    not_before_s: float


class PacedLedger:
    """Resolves operations in dependency order.

    Every resolved operation is returned once by `take_spans`, every host operation that can be run
    once by `take_task`.
    """

    def __init__(self) -> None:
        self._timelines = {queue: Timeline() for queue in Queue}
        self._waiting: dict[Queue, deque[Entry]] = {queue: deque() for queue in Queue}
        self._submitted = dict.fromkeys(Queue, 0)
        self._tasks: deque[HostTask] = deque()
        self._spans: list[Span] = []
        self._stamps: dict[tuple[int, int], float] = {}
        self._chain = CohortChain()
        self._active: dict[int, PacedProgram] = {}
        self._decision_s: float | None = None
        self._num_dispatched = 0
        self._link = SharedLink()

    @property
    def decision_s(self) -> float | None:
        """Moment at which a guarded join will be refused unless its cohort is stamped by then."""
        return self._decision_s

    def free_s(self, queue: Queue) -> float | None:
        """When the queue runs dry; None while that is not known."""
        if self._waiting[queue]:
            return None
        return self._timelines[queue].last_s

    @property
    def base(self) -> dict[Queue, int]:
        """Operations submitted so far, per queue: the base of the next program."""
        return dict(self._submitted)

    @property
    def stalled(self) -> bool:
        """True if no host operation and no pending decision can resolve anything."""
        return self._num_dispatched == 0 and self._decision_s is None

    def submit(self, program: PacedProgram) -> None:
        """Queue a program's operations."""
        self._active[program.program.step_id] = program
        for op in program.program.template.ops:
            self._waiting[op.queue].append(Entry(op, program))
        for queue, count in program.program.template.counts:
            self._submitted[queue] += count
        for slot in program.program.lanes:
            self._chain.submitted(slot.cohort_id, slot.cohort_signal)

    def advance(self, now_s: float) -> None:
        """Resolve whatever can be resolved at the time `now_s`."""
        self._decision_s = None
        moved = True
        while moved:
            moved = False
            for queue in DEVICE_QUEUES:
                waiting = self._waiting[queue]
                while waiting and self._resolve(waiting[0], now_s):
                    waiting.popleft()
                    moved = True
            hosted = self._waiting[Queue.CPU]
            while hosted and self._dispatch(hosted[0]):
                hosted.popleft()
                moved = True

    def take_spans(self) -> list[Span]:
        """Operations resolved since the last call, dependencies first."""
        spans, self._spans = self._spans, []
        return spans

    # --- host operations --------------------------------------------------------------------------

    def take_task(self) -> HostTask | None:
        """The next host operation that can be run, or None."""
        return self._tasks.popleft() if self._tasks else None

    def has_task(self) -> bool:
        """True if a host operation can be run."""
        return bool(self._tasks)

    def stamp(self, task: HostTask, start_s: float, end_s: float) -> None:
        """The worker has finished an operation; operations after it can be resolved."""
        op, program = task.entry.op, task.entry.program
        self._num_dispatched -= 1
        if op.raises is not None and op.raises in program.active(op):
            slot = program.program.lanes[op.raises]
            self._stamps[(slot.cohort_id, slot.cohort_signal + 1)] = end_s
        self._finish(task.entry, start_s, end_s)

    def forget_cohort(self, cohort_id: int) -> None:
        """A finished cohort will not be joined any more."""
        for key in [key for key in self._stamps if key[0] == cohort_id]:
            del self._stamps[key]
        self._chain.forget(cohort_id)

    def _dispatch(self, entry: Entry) -> bool:
        ready_s = self._ready_s(entry)
        if ready_s is None:
            return False
        self._tasks.append(HostTask(entry, ready_s))
        self._num_dispatched += 1
        return True

    # --- device operations ------------------------------------------------------------------------

    def _resolve(self, entry: Entry, now_s: float) -> bool:
        op = entry.op
        ready_s = self._ready_s(entry)
        if ready_s is None:
            return False
        start_s = max(ready_s, self._timelines[op.queue].last_s)
        if op.joins is not None:
            joined_s = self._join(entry, start_s, now_s)
            if joined_s is None:
                return False
            start_s = joined_s
        self._finish(entry, start_s, start_s + self._duration_s(entry, start_s))
        return True

    def _duration_s(self, entry: Entry, start_s: float) -> float:
        duration_s = entry.program.duration_s(entry.op)
        if entry.op.queue is Queue.H2D:
            self._link.copy(start_s, start_s + duration_s)
        elif entry.op.queue is Queue.WEIGHTS:
            return self._link.load_s(start_s, duration_s)
        return duration_s

    def _ready_s(self, entry: Entry) -> float | None:
        """Latest of launch and dependencies; None while one of them is unknown."""
        ready_s = entry.program.submitted_s + entry.program.launch_s
        for wait in entry.op.waits:
            end_s = self._timelines[wait.queue].end(entry.program.base[wait.queue] + wait.ordinal)
            if end_s is None:
                return None
            ready_s = max(ready_s, end_s)
        return ready_s

    def _join(self, entry: Entry, ready_s: float, now_s: float) -> float | None:
        """When the wait for a cohort that began at `ready_s` ends; None if not known at `now_s`.

        A guarded join is decided at the bound of its wait, whichever way the cohort turns out
        later.
        """
        lane, program = entry.op.joins, entry.program.program
        assert lane is not None
        slot: LaneSlot = program.lanes[lane]
        if self._chain.is_broken(slot.cohort_id, slot.cohort_signal):
            entry.program.guards[lane] = False
            return ready_s
        stamp_s = self._stamps.get((slot.cohort_id, slot.cohort_signal))
        bounded = program.template.lanes[lane].guarded and program.max_join_wait_s is not None
        limit_s = ready_s + (program.max_join_wait_s or 0.0) if bounded else math.inf
        if stamp_s is not None and stamp_s <= limit_s:
            entry.program.guards[lane] = True
            self._chain.joined(slot.cohort_id, slot.cohort_signal)
            return max(ready_s, stamp_s)
        if stamp_s is None and now_s < limit_s:
            self._decision_s = limit_s if bounded else self._decision_s
            return None
        entry.program.guards[lane] = False
        return limit_s

    def _finish(self, entry: Entry, start_s: float, end_s: float) -> None:
        program = entry.program
        self._timelines[entry.op.queue].append(end_s)
        self._spans.append(Span(entry, start_s, end_s))
        program.end_s = max(program.end_s, end_s)
        program.remaining -= 1
        if program.remaining == 0:
            del self._active[program.program.step_id]
            self._forget()

    def _forget(self) -> None:
        """Drop what no program will wait for; it may be for the loads, reads and copies ahead that
        ended the one before.
        """
        for queue, timeline in self._timelines.items():
            bases = [program.base[queue] for program in self._active.values()]
            timeline.forget(min(bases, default=self._submitted[queue]) - _LOOKED_BACK)

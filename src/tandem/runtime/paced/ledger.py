"""Ledgers of deadlines: when every operation of the paced emulator starts and ends.

An operation starts at `max(queue free, dependencies, submission + launch)`. The accelerator's end
at `start + cost`, known as soon as the ends of what they wait for are. Copies, reads from disk and
the host's operations, which are real work, share the host's memory, so that their ends are known
only when time gets there (`FluidMemory`). The ledger has no clock and no thread: it is told the
time.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tandem.plan.block_shape import AHEAD_COPIES
from tandem.plan.disk_slots import SLOTS
from tandem.plan.program import ProgramOp, Queue
from tandem.plan.weights import STREAM_SLOTS
from tandem.runtime.paced.fluid_memory import FluidMemory
from tandem.runtime.paced.joins import Joins
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.paced.timeline import Timeline

_LOOKED_BACK = max(STREAM_SLOTS, SLOTS, AHEAD_COPIES)
_DEVICE_QUEUES = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS, Queue.DISK)


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation in flight."""

    op: ProgramOp
    program: PacedProgram


@dataclass(frozen=True, slots=True)
class Span:
    """An operation whose start and end are known.

    Attributes:
        moved_bytes: by a copy or a read; 0 of other operations.
    """

    entry: Entry
    start_s: float
    end_s: float
    moved_bytes: float = 0.0


@dataclass(slots=True, eq=False)
class HostTask:
    """The next host operation, of which is foreseen when it can begin.

    Attributes:
        not_before_s: when what it waits for ends, which may lie ahead; it moves with what changes
            until then, unless it is certain.
        certain: nothing that it waits for can end later any more.
        taken: somebody executes it.
    """

    entry: Entry
    not_before_s: float
    certain: bool = False
    taken: bool = False


class PacedLedger:
    """Resolves operations in dependency order, and those that share the memory as time passes.

    Every resolved operation is returned once by `take_spans`, and every host operation by
    `take_task`, one after the other.

    Args:
        pool_bytes_per_s: of the host's memory, which copies, reads and the CPU share; None: there
            is always enough.
        moved_bytes: by a copy or a read, there.
        has_work: whether a host operation does anything; if not, it is over as soon as it can be.
    """

    def __init__(
        self,
        pool_bytes_per_s: float | None = None,
        moved_bytes: Callable[[Entry], float] = lambda _: 0.0,
        has_work: Callable[[Entry], bool] = lambda _: True,
    ) -> None:
        self._moved_bytes, self._has_work = moved_bytes, has_work
        self._memory = FluidMemory(pool_bytes_per_s)
        self._sharing: dict[Queue, tuple[Entry, float]] = {}
        self._timelines = {queue: Timeline() for queue in Queue}
        self._waiting: dict[Queue, deque[Entry]] = {queue: deque() for queue in Queue}
        self._submitted = dict.fromkeys(Queue, 0)
        self._task: HostTask | None = None
        self._spans: list[Span] = []
        self._joins = Joins()
        self._active: dict[int, PacedProgram] = {}
        self._passed_s = 0.0

    @property
    def next_s(self) -> float | None:
        """The next moment at which something may become known; None: time alone tells nothing."""
        next_s = min(self._memory.next_s(), self._joins.decision_s)
        return next_s if next_s < math.inf else None

    def free_s(self, queue: Queue) -> float | None:
        """When the queue runs dry; None while that is not known."""
        if self._waiting[queue] or self._memory.has(queue):
            return None
        return self._timelines[queue].last_s

    @property
    def base(self) -> dict[Queue, int]:
        """Operations submitted so far, per queue: the base of the next program."""
        return dict(self._submitted)

    @property
    def stalled(self) -> bool:
        """True if no host operation and no pending decision can resolve anything."""
        return self._task is None and self._memory.is_idle and self._joins.decision_s == math.inf

    def submit(self, program: PacedProgram) -> None:
        """Queue a program's operations."""
        self._active[program.program.step_id] = program
        for op in program.program.template.ops:
            self._waiting[op.queue].append(Entry(op, program))
        for queue, count in program.program.template.counts:
            self._submitted[queue] += count
        self._joins.submitted(program)

    def advance(self, now_s: float) -> bool:
        """Resolve whatever can be resolved at the time `now_s`.

        Returns: True if it stopped where a host operation can begin, which whoever executes it
            ahead of time is to be told before it goes on.
        """
        while True:
            self._resolve_all()
            if self._becomes_certain():
                return True
            ends_s = self._memory.next_s()
            next_s = min(ends_s, self._joins.decision_s)
            if next_s > now_s:
                return False
            self._passed_s = max(self._passed_s, next_s)
            if ends_s == next_s:
                for over in self._memory.advance():
                    entry, moved = self._sharing.pop(over.queue)
                    self._finish(entry, over.start_s, over.end_s, moved)

    def _resolve_all(self) -> None:
        self._joins.decision_s = math.inf
        moved = True
        while moved:
            moved = False
            for queue in _DEVICE_QUEUES:
                waiting = self._waiting[queue]
                while waiting and self._resolve(waiting[0]):
                    waiting.popleft()
                    moved = True
            while self._is_over_at_once():
                moved = True

    def take_spans(self) -> list[Span]:
        """Operations resolved since the last call, dependencies first."""
        spans, self._spans = self._spans, []
        return spans

    # --- host operations --------------------------------------------------------------------------

    def take_task(self, *, ahead: bool = False) -> HostTask | None:
        """The next host operation, once; None if it cannot begin.

        Args:
            ahead: as soon as it is foreseen when it can; whoever takes it waits for that.
        """
        task = self._task
        if task is None or task.taken or not (ahead or task.certain):
            return None
        task.taken = True
        return task

    def has_task(self) -> bool:
        """True if it is foreseen when a host operation can begin that nobody has taken."""
        return self._task is not None and not self._task.taken

    def executes(self, task: HostTask) -> bool:
        """Whether a host operation has begun."""
        return task is not self._task

    def begin(
        self, task: HostTask, start_s: float, bytes_per_s: float | None, alone_s: float = math.inf
    ) -> None:
        """A host operation that was taken begins.

        Args:
            bytes_per_s: that it asks of the memory; None: all that there is.
            alone_s: it takes if nothing slows it down; infinite: that will be told (`known`).
        """
        self._task = None
        self._waiting[Queue.CPU].popleft()
        self._sharing[Queue.CPU] = task.entry, 0.0
        self._memory.begin(Queue.CPU, max(start_s, task.not_before_s), alone_s, bytes_per_s)

    def known(self, alone_s: float) -> None:
        """The host operation that has begun took so long, by itself; what slowed it down, or will,
        comes on top.
        """
        self._memory.known(Queue.CPU, alone_s)

    def forget_cohort(self, cohort_id: int) -> None:
        """A finished cohort will not be joined any more."""
        self._joins.forget(cohort_id)

    def _is_over_at_once(self) -> bool:
        """The next host operation can begin, and there is nothing to do."""
        waiting = self._waiting[Queue.CPU]
        if not waiting or self._task is not None or self._memory.has(Queue.CPU):
            return False
        entry = waiting[0]
        ready_s = self._ready_s(entry)
        if ready_s is None or self._has_work(entry):
            return False
        waiting.popleft()
        ready_s = max(ready_s, self._timelines[Queue.CPU].last_s)
        self._finish(entry, ready_s, ready_s)
        return True

    def _becomes_certain(self) -> bool:
        """Foresee when the next host operation can begin.

        Returns: whether that has just become certain.
        """
        waiting = self._waiting[Queue.CPU]
        if not waiting or (self._task is not None and self._task.certain):
            return False
        entry, works = waiting[0], self._memory.has(Queue.CPU)
        free_s = self._timelines[Queue.CPU].last_s
        if works:
            free_s = self._memory.foreseen_s(Queue.CPU)
        ready_s = self._ready_s(entry, foreseen=True)
        if free_s == math.inf or ready_s is None:
            return False
        if self._task is None:
            if not self._has_work(entry):
                return False
            self._task = HostTask(entry, 0.0)
        self._task.not_before_s = max(ready_s, free_s)
        self._task.certain = not works and self._ready_s(entry) is not None
        return self._task.certain

    # --- device operations ------------------------------------------------------------------------

    def _resolve(self, entry: Entry) -> bool:
        """Whether its end is known, or it shares the memory from a moment on that is known."""
        op = entry.op
        if self._memory.has(op.queue) or (ready_s := self._ready_s(entry)) is None:
            return False
        start_s = max(ready_s, self._timelines[op.queue].last_s)
        if op.joins is not None:
            joined_s = self._joins.decide(entry.program, op.joins, start_s, self._passed_s)
            if joined_s is None:
                return False
            start_s = joined_s
        alone_s = entry.program.duration_s(op)
        if op.queue is Queue.ACCEL or not alone_s:
            self._finish(entry, start_s, start_s + alone_s)
            return True
        moved = self._moved_bytes(entry)
        self._sharing[op.queue] = entry, moved
        self._memory.begin(op.queue, start_s, alone_s, moved / alone_s)
        return True

    def _ready_s(self, entry: Entry, *, foreseen: bool = False) -> float | None:
        """Latest of launch and dependencies; None while one of them is unknown, or not even
        foreseen.
        """
        ready_s = entry.program.submitted_s + entry.program.launch_s
        for wait in entry.op.waits:
            value = entry.program.base[wait.queue] + wait.ordinal
            end_s = self._timelines[wait.queue].end(value)
            if end_s is None and foreseen:
                end_s = self._foreseen_s(wait.queue, value)
            if end_s is None:
                return None
            ready_s = max(ready_s, end_s)
        return ready_s

    def _foreseen_s(self, queue: Queue, value: int) -> float | None:
        """When a signal will have a value that it has not yet, if nothing changes; None: that
        hangs on what has not even begun, or may take however long.
        """
        under_way = value == self._timelines[queue].num_resolved + 1 and self._memory.has(queue)
        if not under_way:
            return None
        end_s = self._memory.foreseen_s(queue)
        return end_s if end_s < math.inf else None

    def _finish(self, entry: Entry, start_s: float, end_s: float, moved_bytes: float = 0.0) -> None:
        op, program = entry.op, entry.program
        if op.raises is not None and op.raises in program.active(op):
            self._joins.stamp(program.program.lanes[op.raises], end_s)
        self._timelines[op.queue].append(end_s)
        self._spans.append(Span(entry, start_s, end_s, moved_bytes))
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

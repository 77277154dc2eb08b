"""The emulated accelerator in paced mode: hardware in the loop.

Accelerator and link take the time that a hardware description says, the host's attention takes the
time that it takes here. Nothing is computed on the accelerator's side; see `ledger.py` for how
time passes, `report.py` for when a run's figures may be believed.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from tandem.devices.native_wait import NativeAlarm, sharpen_timers
from tandem.plan.events import (
    Event,
    Failed,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TransferDone,
)
from tandem.plan.executed_op import OpListener
from tandem.plan.program import EventKind, OpKind, Part, ProgramOp, Queue, StepProgram
from tandem.runtime.executor import Rank
from tandem.runtime.paced.costs import PacedCosts
from tandem.runtime.paced.gauges import Gauges
from tandem.runtime.paced.journal import ProgramJournal
from tandem.runtime.paced.ledger import HostTask, PacedLedger, Span
from tandem.runtime.paced.pool import HostPool
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.paced.report import PacedReport
from tandem.runtime.paced.tokens import SyntheticTokens


class PacedClock(Protocol):
    """Time, and waiting for it, on the scheduler's thread."""

    def now(self) -> float:
        """Seconds."""
        ...

    def wait(self, deadline_s: float | None) -> None:
        """Block until then (None: for ever), or until `ring`."""
        ...

    def ring(self) -> None:
        """End the wait; from any thread."""
        ...

    def worked_s(self) -> float:
        """Processor time of the calling thread so far, waiting excluded."""
        ...

    def close(self) -> None:
        """Free what waiting needs."""
        ...


class RealClock(NativeAlarm):
    """The monotonic clock."""

    def now(self) -> float:
        """Seconds of `time.perf_counter`."""
        return time.perf_counter()

    def worked_s(self) -> float:
        """The thread's processor time less what it spun away."""
        return time.thread_time() - self.spun_s


class StalledError(RuntimeError):
    """No operation can ever end: the programs wait for each other."""


class PacedExecutor:
    """Runs programs against ledgers of deadlines and a worker for the host's operations.

    Called by one thread, the scheduler's; the pool's thread enters through `take_task` to `failed`.

    Args:
        costs: what operations cost, and the host's real work.
        tokens: what is said to have been sampled.
        pool: executes host operations.
        launch_s: from submission to the earliest start of an operation.
        memory_bytes_per_s: of the host's memory, which copies, reads and the CPU share; None: they
            do not slow each other down.
        listeners: told of every operation, as soon as its end is known, which may lie ahead.
        journal: of what is submitted and told; None: nothing is kept.
    """

    def __init__(
        self,
        costs: PacedCosts,
        tokens: SyntheticTokens,
        gauges: Gauges,
        pool: HostPool,
        clock: PacedClock,
        launch_s: float,
        memory_bytes_per_s: float | None,
        listeners: Sequence[OpListener] = (),
        journal: ProgramJournal | None = None,
    ) -> None:
        self._listeners, self._journal = tuple(listeners), journal
        self._costs, self._tokens, self._gauges = costs, tokens, gauges
        self._pool, self._clock, self._launch_s = pool, clock, launch_s
        self._ledger = PacedLedger(memory_bytes_per_s, costs.moved_bytes, costs.has_work)
        self._lock = threading.RLock()
        self._events: list[tuple[float, int, Event]] = []
        self._numbers = itertools.count()
        self._forward: PacedProgram | None = None
        self._sleeps_until: float | None = 0.0
        self._looks_s: float | None = 0.0  # as `_sleeps_until`, of the pool's thread
        self._advancing = False
        self._begun: tuple[HostTask, float] | None = None
        self._asked: dict[tuple[OpKind, Part], float] = {}
        self._told_s = 0.0  # time of the last event that was delivered
        self._fast = False
        sharpen_timers()
        pool.start(self)

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    # --- the scheduler's thread -------------------------------------------------------------------

    def submit(self, program: StepProgram) -> None:
        """Enter a program's operations into the ledgers; returns at once."""
        fast = self._fast
        lanes = self._costs.prepare(program, skip=fast)

        def cost_s(op: ProgramOp, active: tuple[int, ...]) -> float:
            return 0.0 if fast else self._costs.cost_s(entered, op, active)

        with self._lock:
            now_s = self._clock.now()
            entered = PacedProgram(
                program,
                self._ledger.base,
                now_s,
                0.0 if fast else self._launch_s,
                cost_s,
                lanes,
                _without_sequences(program),
                self._forward_of(program),
                layer_kind=self._costs.layer_kind,
            )
            if program.lanes:
                self._note_submission(program, now_s)
                self._forward = entered
            if self._journal is not None:
                self._journal.submitted(entered)
            self._ledger.submit(entered)
            self._advance(now_s)

    def poll(self, *, wait: bool) -> list[Event]:
        """Events whose time has come; with `wait`, at least one."""
        asked_s = self._clock.now()
        events = self._due(asked_s)
        while wait and not events:
            with self._lock:
                deadline_s = self._next_s()
                if deadline_s is None and self._ledger.stalled:
                    raise StalledError("nothing is in flight that could end")
                self._sleeps_until = deadline_s
            self._clock.wait(deadline_s)
            events = self._due(asked_s)
        if self._journal is not None:
            self._journal.told(events)
        return events

    def release_cohort(self, cohort_id: int) -> None:
        """Forget a finished cohort's stamps and arrays."""
        with self._lock:
            self._ledger.forget_cohort(cohort_id)
            self._costs.forget_cohort(cohort_id)
        if self._journal is not None:
            self._journal.released(cohort_id)

    def close(self) -> None:
        """Drop what is in flight, since nothing of it would be kept, and stop the worker."""
        self._pool.close()
        self._clock.close()

    # --- measuring --------------------------------------------------------------------------------

    def fast_forward(self, on: bool) -> None:
        """While on, operations cost nothing and the host's are skipped: to reach a steady state."""
        self._fast = on

    def begin_window(self) -> None:
        """Measure from now on."""
        with self._lock:
            self._gauges.begin(self._clock.now(), self._clock.worked_s())

    def report(self) -> PacedReport:
        """What was measured since `begin_window`, and whether it is valid."""
        with self._lock:
            return self._gauges.report(self._clock.now(), self._clock.worked_s())

    # --- the pool's thread ------------------------------------------------------------------------

    def look(self) -> float | None:
        """Let be known what has ended by now; returns when there may be more, None: not by time."""
        with self._lock:
            self._looks_s = 0.0
            self._advance(self._clock.now())
            self._wake_poller()
            self._looks_s = self._ledger.next_s
            return self._looks_s

    def take_task(self, *, ahead: bool = False) -> HostTask | None:
        """The next host operation; see `PacedLedger.take_task`."""
        with self._lock:
            task = self._ledger.take_task(ahead=ahead)
            if task is not None:
                self._looks_s = 0.0  # it is awake, and looks again when it has done this
            return task

    def begun(self, task: HostTask, start_s: float) -> None:
        """Real work begins; without the lock, since it must not wait for it."""
        self._begun = task, start_s

    def run_task(self, task: HostTask) -> None:
        """Append, attend or multiply, for real."""
        self._costs.run(task)

    def completed(self, task: HostTask, start_s: float, end_s: float) -> None:
        """The work has taken, or will take, so long by itself; what shares the memory meanwhile
        makes it longer, and is itself made longer.
        """
        with self._lock:
            gauges, op, alone_s = self._gauges, task.entry.op, end_s - start_s
            gauges.lateness.start.append(max(0.0, start_s - task.not_before_s))
            read_bytes = self._costs.read_bytes(task)
            if op.kind is OpKind.ATTEND:
                gauges.attended(int(read_bytes))
            asked = read_bytes / alone_s if read_bytes and alone_s else None
            if asked is not None:
                self._asked[op.kind, op.part] = asked
            self._take_begun()
            if self._ledger.executes(task):
                self._ledger.known(alone_s)
            else:
                self._ledger.begin(task, start_s, asked, alone_s)
            self._advance(self._clock.now())
            self._wake_poller()

    def failed(self, task: HostTask | None, error: BaseException) -> None:
        """The operation raised, or what follows from the time did: the engine hears of it at its
        next poll, of the last sweep if it is nobody's.
        """
        with self._lock:
            last = self._forward if task is None else task.entry.program
            step = 0 if last is None else last.program.step_id
            self._post(0.0, Failed(step, f"{type(error).__name__}: {error}"))
            self._wake_poller()

    # --- ledgers (under the lock) -----------------------------------------------------------------

    def _forward_of(self, program: StepProgram) -> PacedProgram | None:
        if not program.sampling or program.lanes:
            return None
        forward = self._forward
        if forward is None or forward.program.step_id != program.forward_step:
            raise ValueError(f"logits of step {program.forward_step} are gone: sample sooner")
        return forward

    def _note_submission(self, program: StepProgram, now_s: float) -> None:
        """How long the accelerator has been idle when this sweep is submitted.

        Only between sweeps with a lane that runs through: cohorts alone leave it idle by nature.
        Programs of blocks come after the tokens of the one before, and may not be late from then.
        """
        last, free_s = self._forward, self._ledger.free_s(Queue.ACCEL)
        if free_s is not None and last is not None and _has_main(last.program, program):
            due_s = max(free_s, self._told_s) if program.sampling else free_s
            self._gauges.lateness.submit.append(max(0.0, now_s - due_s))

    def _take_begun(self) -> None:
        """Let real work begin at its moment, of what comes after which nothing has been told."""
        if self._begun is None:
            return
        (task, start_s), self._begun = self._begun, None
        while self._ledger.advance(start_s):
            pass
        op = task.entry.op
        # what it reads per second is known when it has ended: as much as the last of its kind
        self._ledger.begin(task, start_s, self._asked.get((op.kind, op.part)))

    def _advance(self, now_s: float) -> None:
        if self._advancing:  # a virtual pool has been woken, and says what its task takes
            return
        self._advancing = True
        try:
            self._take_begun()
            while self._ledger.advance(now_s):
                self._pool.wake()
        finally:
            self._advancing = False
        spans = self._ledger.take_spans()
        for span in spans:
            self._gauges.resolved(span)
            self._stamp(span)
        for span in spans:
            self._report_end(span)
        next_s = self._ledger.next_s
        if self._ledger.has_task() or _is_before(next_s, self._looks_s):
            self._looks_s = 0.0
            self._pool.wake()

    def _stamp(self, span: Span) -> None:
        op, program = span.entry.op, span.entry.program
        program.stamps.ran(op, span.start_s, span.end_s)
        if self._listeners:
            ran = program.executed(op, span.start_s, span.end_s)
            for listener in self._listeners:
                listener(ran)

    def _report_end(self, span: Span) -> None:
        op, program = span.entry.op, span.entry.program
        step = program.program.step_id
        if op.event is EventKind.LANE_DONE:
            for lane in program.active(op):
                self._post(span.end_s, LaneDone(step, lane))
        elif op.event is EventKind.LANE_ADVANCED:
            lane = op.lanes[0]
            self._post(span.end_s, LaneAdvanced(step, lane, program.guards.get(lane, True)))
        elif op.event is EventKind.TRANSFER_DONE:
            transfer = program.pages[(op.queue, op.ordinal)]
            self._post(span.end_s, TransferDone(step, transfer.transfer_id))
        elif op.event is EventKind.TOKENS and program.active(op):
            tokens = self._tokens.sample(program.program, op.lanes[0], program.sampled)
            self._post(span.end_s, tokens)
        if program.remaining == 0 and not program.retired:
            program.retired = True
            self._post(program.end_s, StepRetired(step, program.stamps.times()))

    def _post(self, time_s: float, event: Event) -> None:
        heapq.heappush(self._events, (time_s, next(self._numbers), event))

    def _next_s(self) -> float | None:
        """The next moment at which something is to be delivered, or may become known."""
        times = [time_s for time_s, *_ in self._events[:1]]
        if (next_s := self._ledger.next_s) is not None:
            times.append(next_s)
        return min(times, default=None)

    def _wake_poller(self) -> None:
        next_s = self._next_s()
        if _is_before(next_s, self._sleeps_until):
            self._sleeps_until = next_s
            self._clock.ring()

    def _due(self, asked_s: float) -> list[Event]:
        """Take events whose time has come, in the order of their times.

        What came before it was asked for is told as late on any device; only from then on is the
        emulator itself late, which is counted apart.
        """
        with self._lock:
            self._sleeps_until = 0.0
            now_s = self._clock.now()
            self._advance(now_s)
            due: list[Event] = []
            while self._events and self._events[0][0] <= now_s:
                time_s, _, event = heapq.heappop(self._events)
                self._told_s = time_s
                if not due:
                    lateness = self._gauges.lateness
                    lateness.poll.append(now_s - time_s)
                    lateness.waking.append(now_s - max(time_s, asked_s))
                due.append(event)
            return due


def _is_before(one_s: float | None, other_s: float | None) -> bool:
    """None is never."""
    return one_s is not None and (other_s is None or one_s < other_s)


def _has_main(*programs: StepProgram) -> bool:
    """True if each has a lane that runs through all layers, and work for the accelerator."""
    return all(
        any(lane.cursor is None and not lane.suspends for lane in program.template.lanes)
        and any(queue is Queue.ACCEL and count for queue, count in program.template.counts)
        for program in programs
    )


def _without_sequences(program: StepProgram) -> dict[int, bool]:
    """Batches of a block that take no part, as guards that have failed."""
    return {i: False for i, slot in enumerate(program.lanes) if not slot.binding.num_tokens}

"""The device interpreter: one thread launches each queue's operations as their waits permit."""

import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

import torch

from tandem.plan.events import Event, Failed
from tandem.plan.executed_op import OpListener
from tandem.plan.launch_order import by_one_thread, by_own_threads
from tandem.plan.op_runs import OpRun, op_runs
from tandem.plan.program import ProgramOp, ProgramTemplate, Queue, StepProgram
from tandem.runtime.by_template import ByTemplate
from tandem.runtime.executor import Rank
from tandem.runtime.machine import Machine
from tandem.runtime.op_starts import OpStarts
from tandem.runtime.report_order import ReportOrder
from tandem.runtime.running import Completed, Launch, Running
from tandem.runtime.timelines import Timelines, make_timelines

if TYPE_CHECKING:
    from tandem.runtime.stream_waits import StreamWaits, ValueWaits
    from tandem.runtime.task_queue import TaskQueue

_LIVENESS_CHECK_S = 1.0


class QueueDriver(Protocol):
    """How a device's queues launch work, wait for each other, and tell that they are done."""

    def enter(self, queue: Queue) -> None:
        """Called once on the queue's thread before anything runs on it."""
        ...

    def submitting(self) -> AbstractContextManager[object]:
        """Entered while a program's numbers are brought to the device, by the thread that submits
        it.
        """
        ...

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        """Order what `queue` launches next after `on`'s timeline has reached `value`.

        May only order it on the device, without blocking. False if the driver gave up waiting for
        now (the caller asks again, so that a dead peer is noticed).
        """
        ...

    @property
    def launches(self) -> bool:
        """Whether to run an operation is to launch it, so that a thread can do so for others."""
        ...

    def on(self, queue: Queue) -> AbstractContextManager[object]:
        """Entered while a thread runs operations of another's queue."""
        ...

    def launched(self, queue: Queue, value: int) -> bool:
        """Whether number `value` of a queue has been launched, by whichever thread; False if the
        driver gave up waiting for now.
        """
        ...

    @property
    def raised(self) -> frozenset[Queue]:
        """Queues of whose ends the device tells in host memory by itself."""
        ...

    def mark(self, queue: Queue, begun_s: float) -> None:
        """A part of what `done` will tell of has been launched, from `begun_s` on."""
        ...

    def done(
        self, queue: Queue, value: int, running: Launch, begun_s: float, *, later: bool = False
    ) -> None:
        """`running` has been launched as number `value` of its queue, the last part from `begun_s`
        on; when it has completed, raise the timeline and call back the executor's `completed`.
        Other queues can wait for it at once.

        Args:
            later: to raise and to call back may wait for the queue's next without this.
        """
        ...

    def close(self) -> None:
        """Wait until all launched work has completed and stop."""
        ...


class ThreadedExecutor:
    """Queues as threads over a driver; programs overlap as far as their signals allow.

    Operations that follow each other on a queue, and of which nobody else waits for the inner ones,
    are one call with one end (`plan.op_runs`).

    Where the host tier's kernels are compiled, the CPU queue's thread only submits appends and
    attentions: they run on native threads as soon as their inputs are there, and a thread of its
    own reports them. Stages of layers on the CPU it runs itself, in their turn.

    Args:
        listeners: told of every operation that has ended; where there are any, each is a call of
            its own.
        timelines: of all queues; by default new ones.
        meter: told of every part of a call, as if it were its last operation.

    Attributes:
        timelines: how many operations of each queue have completed; the driver raises them, but
            for the CPU queue's where that runs on native threads.
    """

    def __init__(
        self,
        machine: Machine,
        listeners: Sequence[OpListener] = (),
        timelines: Timelines | None = None,
        meter: OpListener | None = None,
    ) -> None:
        self.timelines: Timelines = timelines or make_timelines()
        self._machine = machine
        self._single = bool(listeners)
        self._listeners = (*(() if meter is None else (meter,)), *listeners)
        self._driver: QueueDriver | None = None
        self._by_one = False  # the accelerator's thread launches others' runs, too
        self._tasks: TaskQueue | None = None
        self._stream_waits: StreamWaits | None = None
        self._inboxes: dict[Queue, SimpleQueue[Launch | None]] = {q: SimpleQueue() for q in Queue}
        self._threads: list[threading.Thread] = []
        self._events: list[Event] = []
        self._arrived = threading.Condition()
        self._failed = threading.Event()
        self._order, self._starts = ReportOrder(), OpStarts()
        self._runs = ByTemplate(lambda each: by_one_thread(each, self._runs_of(each)))
        self._runs_apart = ByTemplate(lambda each: by_own_threads(self._runs_of(each)))
        self._order_lock = threading.Lock()

    def start(self, driver: QueueDriver, value_waits: "ValueWaits | None" = None) -> None:
        """Begin to run queues on `driver`, which reports to `completed`.

        Args:
            value_waits: the same driver, if copies to the device are to wait there for what the CPU
                attends to.
        """
        self._driver = driver
        # blocks copy to memory that is not pinned, which a thread has to wait for
        self._by_one = driver.launches and self._machine.runner.blocks is None
        if self._machine.host_tasks is not None:
            from tandem.runtime.task_queue import TaskQueue

            self._tasks = TaskQueue(
                self._machine.host_tasks, self.timelines, self.completed, self.failed
            )
            if value_waits is not None:
                from tandem.runtime.stream_waits import StreamWaits

                self._stream_waits = StreamWaits(value_waits, self._tasks)
        for queue in Queue:
            thread = threading.Thread(
                target=self._serve, args=(queue, driver), name=f"tandem-{queue}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Hand all operations to their queues."""
        assert self._driver is not None, "started before"
        with self._driver.submitting():
            context = self._machine.prepare(program)
        # copies from and to memory that is not pinned block the thread that launches them
        blocks = any(lane.staging is not None and not lane.staging.pinned for lane in context.lanes)
        runs = self._runs_apart if blocks or not self._by_one else self._runs
        for thread, run in runs(context.program.template):
            self._inboxes[thread].put(Launch(run, context))

    def _runs_of(self, template: ProgramTemplate) -> Sequence[OpRun]:
        assert self._driver is not None, "started before"
        return op_runs(template, self._driver.raised, single=self._single)

    def poll(self, *, wait: bool) -> list[Event]:
        """Events so far; with `wait`, at least one."""
        with self._arrived:
            if wait:
                self._arrived.wait_for(lambda: bool(self._events))
            events, self._events = self._events, []
        return events

    def release_cohort(self, cohort_id: int) -> None:
        """Free a finished cohort's buffers."""
        self._machine.release_cohort(cohort_id)

    def close(self) -> None:
        """Let every queue run empty, then end its thread. Whoever still holds the executor holds
        neither memory nor the device by it.
        """
        if self._driver is None:  # never started, or closed before
            return
        for inbox in self._inboxes.values():
            inbox.put(None)
        for thread in self._threads:
            thread.join()
        if self._tasks is not None:
            self._tasks.close()
        self._driver.close()
        self._driver = self._tasks = self._stream_waits = None
        self.timelines = {}  # the driver's counters may be among them
        del self._machine

    def completed(self, ended: Sequence[tuple[Launch, Sequence[tuple[float, float]]]]) -> None:
        """A driver's call: what came next on a queue has completed; from any thread.

        Args:
            ended: each with the times of its parts, as in `Completed`.
        """
        try:
            for launch, _ in ended:
                # before the host's part, which a hybrid step is told after: it may never end
                self._machine.require_host_part(launch.last)
                if launch.run.last.raises is not None:
                    self._machine.complete(launch.last)
            self._report([Completed._make(each) for each in ended])
        except Exception as error:  # noqa: BLE001 - else a thread of the driver's would end silently
            self.failed(ended[-1][0], error)

    def _report(self, ended: Sequence[Completed]) -> None:
        """Nothing once something has failed: what ends then may have gone on without its inputs."""
        events = list[Event]()
        with self._order_lock:
            if self._failed.is_set():
                return
            for reported in self._order.completed(ended[0].launch.queue, ended):
                self._stamp(reported)
                launch = reported.launch
                events += self._machine.report_all(launch.run.ops, launch.context)
            self._post(events)

    def _stamp(self, completed: Completed) -> None:
        run, context = completed.launch.run, completed.launch.context
        spans = self._starts.add(completed)
        stood_s = self._machine.stood_s(completed.launch.last)
        for part, (started_s, end_s) in zip(run.parts, spans, strict=True):
            start_s = min(started_s + stood_s, end_s)
            context.stamps.ran(part[0], start_s, end_s)
            if self._listeners:
                ran = context.executed(part[-1], start_s, end_s)
                for listener in self._listeners:
                    listener(ran)

    def failed(self, launch: Launch, error: BaseException) -> None:
        """It raised: no queue goes on."""
        self._failed.set()
        try:
            if self._tasks is not None:
                self._tasks.abandon()
            if self._stream_waits is not None:  # for what has been taken back
                self._stream_waits.release()
            self._machine.release()
        finally:
            step = launch.context.program.step_id
            self._post([Failed(step, f"{type(error).__name__}: {error}")])

    def _post(self, events: list[Event]) -> None:
        if events:
            with self._arrived:
                self._events += events
                self._arrived.notify_all()

    def _serve(self, queue: Queue, driver: QueueDriver) -> None:
        driver.enter(queue)
        # entered once: entering it for every operation costs as much as a small one
        with torch.inference_mode():
            while (launch := self._inboxes[queue].get()) is not None:
                if self._failed.is_set():
                    continue
                try:
                    if queue is Queue.CPU and self._tasks is not None:
                        self._serve_host(self._tasks, launch, driver)
                    elif self._await(launch.queue, launch, driver):
                        with nullcontext() if launch.queue is queue else driver.on(launch.queue):
                            self._launch(launch.queue, launch, driver)
                except Exception as error:  # noqa: BLE001 - reported as Failed
                    self.failed(launch, error)

    def _launch(self, queue: Queue, launch: Launch, driver: QueueDriver) -> None:
        begun_s = time.perf_counter()
        for number, part in enumerate(launch.run.parts):
            if number:
                driver.mark(queue, begun_s)
                begun_s = time.perf_counter()
            self._execute(part, launch)
        driver.done(queue, launch.value, launch, begun_s, later=launch.run.told_later)

    def _execute(self, ops: Sequence[ProgramOp], launch: Launch) -> None:
        run, context = self._machine.runner.run, launch.context
        for op in ops:
            run(Running(op, context))

    def _serve_host(self, tasks: "TaskQueue", launch: Launch, driver: QueueDriver) -> None:
        if tasks.takes(launch):
            if self._is_decided(launch) or self._await(Queue.CPU, launch, driver):
                tasks.submit(launch)
        elif self._await(Queue.CPU, launch, driver):
            tasks.run(launch, lambda: self._execute(launch.run.ops, launch))

    @staticmethod
    def _is_decided(launch: Launch) -> bool:
        """Whether it is known which lanes take part; else only when the waits are reached."""
        lanes, guards = launch.context.program.template.lanes, launch.context.guards
        return all(
            lane in guards or not lanes[lane].guarded for op in launch.run.ops for lane in op.lanes
        )

    def _await(self, queue: Queue, launch: Launch, driver: QueueDriver) -> bool:
        # a join's bounded wait is the host's: it must not begin before the sweep is there, so its
        # operation waits as the CPU queue does, blocking this thread
        if self._by_one:  # another thread may launch what comes before
            while not driver.launched(queue, launch.value - len(launch.run.ops)):
                if self._failed.is_set():
                    return False
        joins = launch.run.first.joins is not None
        waiter = Queue.CPU if joins else queue
        for on, value in launch.waits:
            while not self._ordered(waiter, on, value, launch, driver):
                if self._failed.is_set():
                    return False
        return self._await_cohort(launch.first) if joins else True

    def _ordered(
        self, queue: Queue, on: Queue, value: int, launch: Launch, driver: QueueDriver
    ) -> bool:
        waits = self._stream_waits
        if waits is not None and on is Queue.CPU and waits.takes(launch.first):
            ordered = waits.order(queue, value, _LIVENESS_CHECK_S)
            if ordered is not None:
                return ordered
        return driver.wait(queue, on, value)

    def _await_cohort(self, running: Running) -> bool:
        joins = running.op.joins
        assert joins is not None
        if self._machine.is_refused(running):
            running.context.guards[joins] = False
            return True
        bound_s = running.context.program.max_join_wait_s
        if self._machine.is_guarded(running) and bound_s is not None:
            if not self._machine.cohort_wait(running, bound_s):
                running.context.guards[joins] = False
                return True
        else:
            while not self._machine.cohort_wait(running, _LIVENESS_CHECK_S):
                if self._failed.is_set():
                    return False
        self._machine.joined(running)
        running.context.guards[joins] = True
        return True


class HostDriver:
    """Queues that are plain threads on the host: launched means completed."""

    def __init__(self, executor: ThreadedExecutor) -> None:
        self._executor = executor
        self._spans: dict[Queue, list[tuple[float, float]]] = {queue: [] for queue in Queue}

    def enter(self, queue: Queue) -> None:
        """Nothing to set up."""

    def submitting(self) -> AbstractContextManager[object]:
        """All queues see the same memory."""
        return nullcontext()

    def wait(self, queue: Queue, on: Queue, value: int) -> bool:
        """Block until the other queue has come so far, for a second at most."""
        return self._executor.timelines[on].wait(value, _LIVENESS_CHECK_S)

    @property
    def launches(self) -> bool:
        """An operation has ended when it has been run."""
        return False

    def on(self, queue: Queue) -> AbstractContextManager[object]:
        """All queues see the same memory."""
        return nullcontext()

    def launched(self, queue: Queue, value: int) -> bool:
        """As long as it runs, it is being launched."""
        return self.wait(queue, queue, value)

    @property
    def raised(self) -> frozenset[Queue]:
        """A queue's own thread tells of all that it does, at once."""
        return frozenset(Queue)

    def mark(self, queue: Queue, begun_s: float) -> None:
        """It has ended."""
        self._spans[queue].append((begun_s, time.perf_counter()))

    def done(
        self, queue: Queue, value: int, running: Launch, begun_s: float, *, later: bool = False
    ) -> None:
        """Raise the timeline and report: it is known already."""
        del later
        self.mark(queue, begun_s)
        spans, self._spans[queue] = self._spans[queue], []
        self._executor.timelines[queue].set(value)
        self._executor.completed([(running, spans)])

    def close(self) -> None:
        """Nothing to free."""

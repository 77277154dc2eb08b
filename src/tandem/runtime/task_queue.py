"""The CPU queue on native threads: submitted ahead by one Python thread, reported by another.

Import this module only if `native.available()`.
"""

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from tandem.devices.signal import Signal
from tandem.kernels.native_pool import SignalPoint
from tandem.plan.program import Queue
from tandem.runtime.host_tasks import HostTask, HostTasks, SweepTask
from tandem.runtime.running import Completed, Launch, Running
from tandem.runtime.timelines import NativeTimeline, Timelines

_LIVENESS_CHECK_S = 1.0


class TaskQueue:
    """Runs operations in order; each begins when its waits are reached, without Python.

    `submit` and `close` are called by one thread.

    Args:
        completed: called with what has ended, in order, on a thread of this object; each with the
            moments of its start and end, as the driver's. failed: called with the first that
            raised; then what has not begun is taken back, and nothing more is reported.
    """

    def __init__(
        self,
        tasks: HostTasks,
        timelines: Timelines,
        completed: Callable[[Sequence[Completed]], None],
        failed: Callable[[Launch, BaseException], None],
    ) -> None:
        self._tasks = tasks
        self._timelines = timelines
        self._completed = completed
        self._failed = failed
        self._lock = threading.Lock()
        self._abandoned = False
        self._under_way: dict[int, HostTask | SweepTask] = {}
        self._inputs: dict[int, list[tuple[Queue, int]]] = {}  # of those under way
        self._announced = Signal()  # up to where it is known who executes
        self._held: list[Launch | Completed] = []  # to be told with the next one that is not
        self._submitted: SimpleQueue[list[Launch | Completed] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._report, name="tandem-cpu-report", daemon=True)
        self._thread.start()

    def submit(self, launch: Launch) -> None:
        """Give a run to the native threads; its guards are decided.

        Raises:
            ValueError: slots or blocks that do not exist.
        """
        value, ops = launch.value, launch.run.ops
        inputs = [*launch.waits, (Queue.CPU, value - len(ops))]
        after = [self._point(queue, reached) for queue, reached in inputs]
        task = self._prepared(launch)
        with self._lock:
            if self._abandoned:
                return
            self._under_way[value], self._inputs[value] = task, inputs
            # before it can end: whoever waits for its end reads the result
            task.publish()
            task.submit(after, self._point(Queue.CPU, value))
        self._announced.set(value)
        self._tell(launch, launch)

    def _prepared(self, launch: Launch) -> HostTask | SweepTask:
        prepare, context = self._tasks.prepare, launch.context
        first, *others = (prepare(Running(op, context)) for op in launch.run.ops)
        if not others:
            return first
        return HostTask.joined([each for each in (first, *others) if isinstance(each, HostTask)])

    def _tell(self, launch: Launch, given: Launch | Completed) -> None:
        """Have it reported; where that may be later, with those behind it: a thread that wakes up
        takes longer than what it then does.
        """
        self._held.append(given)
        if not launch.run.told_later:
            self._submitted.put(self._held)
            self._held = []

    @staticmethod
    def takes(launch: Launch) -> bool:
        """Whether `submit` can have a run; otherwise `run` does."""
        return all(map(HostTasks.takes, launch.run.ops))

    def run(self, launch: Launch, execute: Callable[[], None]) -> None:
        """Execute a run on this thread after all before it; its waits are reached.

        Raises: what `execute` raises.
        """
        value, timeline = launch.value, self._timelines[Queue.CPU]
        self._announced.set(value)
        while not timeline.wait(value - len(launch.run.ops), _LIVENESS_CHECK_S):
            if self._abandoned:
                return
        begun_s = time.perf_counter()
        execute()
        end_s = time.perf_counter()
        timeline.set(value)
        self._tell(launch, Completed(launch, ((begun_s, end_s),)))

    def await_announced(self, value: int, timeout_s: float) -> bool:
        """Block until it is known who executes the operation with that number; False if `timeout_s`
        passed first. From any thread.
        """
        return self._announced.wait(value, timeout_s)

    def inputs_of(self, value: int) -> Sequence[tuple[Queue, int]] | None:
        """What an announced operation needs before native threads end it by themselves, and what is
        before it; None: Python executes it, or it has been reported or taken back.
        """
        with self._lock:
            return None if self._abandoned else self._inputs.get(value)

    def abandon(self) -> None:
        """Take back what has not begun, since its inputs may never come; from any thread."""
        with self._lock:
            self._abandoned = True
            for task in self._under_way.values():
                task.cancel()

    def close(self) -> None:
        """Wait for all that was submitted, then end the thread."""
        if self._held:  # what was to come behind them has failed
            self._submitted.put(self._held)
        self._submitted.put(None)
        self._thread.join()

    def _report(self) -> None:
        while (together := self._submitted.get()) is not None:
            if isinstance(last := together[-1], Launch):
                self._wait(last)  # then the others have ended, too
            self._report_all(together)

    def _report_all(self, together: Sequence[Launch | Completed]) -> None:
        """Those before the first that failed have completed."""
        completed, failed = list[Completed](), None
        for given in together:
            ended = self._wait(given) if isinstance(given, Launch) else given
            if not isinstance(ended, Completed):
                assert isinstance(given, Launch)
                failed = given, ended
                break
            completed.append(ended)
        with self._lock:
            for given in together:
                value = given.value if isinstance(given, Launch) else given.launch.value
                self._under_way.pop(value, None)
                self._inputs.pop(value, None)
            abandoned = self._abandoned
        if abandoned:
            return
        if completed:
            self._completed(completed)
        if failed is not None:
            self.abandon()
            self._failed(*failed)

    def _wait(self, launch: Launch) -> Completed | Exception:
        task = self._under_way[launch.value]
        try:
            task.wait()
        except Exception as error:  # noqa: BLE001 - reported as Failed
            task.cancel()  # what of it has not begun: to free it would wait for that
            return error
        return Completed(launch, (task.stamps_s(),))

    def _point(self, queue: Queue, value: int) -> SignalPoint:
        timeline = self._timelines[queue]
        assert isinstance(timeline, NativeTimeline)
        return timeline.point(value)

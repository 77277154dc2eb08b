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
from tandem.runtime.running import Completed, Running
from tandem.runtime.timelines import NativeTimeline, Timelines

_LIVENESS_CHECK_S = 1.0


class TaskQueue:
    """Runs operations in order; each begins when its waits are reached, without Python.

    `submit` and `close` are called by one thread.

    Args:
        completed, failed: called for each operation in order, on a thread of this object, the
            former with the moments of its start and end (`time.perf_counter`); after the first
            failure what has not begun is taken back, and nothing more is reported.
    """

    def __init__(
        self,
        tasks: HostTasks,
        timelines: Timelines,
        completed: Callable[[Running, float, float], None],
        failed: Callable[[Running, BaseException], None],
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
        self._held: list[Running | Completed] = []  # to be told with the next one that is not
        self._submitted: SimpleQueue[list[Running | Completed] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._report, name="tandem-cpu-report", daemon=True)
        self._thread.start()

    def submit(self, running: Running) -> None:
        """Give an operation to the native threads; its guards are decided.

        Raises:
            ValueError: slots or blocks that do not exist.
        """
        inputs = [*running.waits(), (Queue.CPU, running.value - 1)]
        after = [self._point(queue, value) for queue, value in inputs]
        task = self._tasks.prepare(running)
        with self._lock:
            if self._abandoned:
                return
            self._under_way[running.value], self._inputs[running.value] = task, inputs
            # before it can end: whoever waits for its end reads the result
            task.publish()
            task.submit(after, self._point(Queue.CPU, running.value))
        self._tell(running, running)

    def _tell(self, running: Running, given: Running | Completed) -> None:
        """Announce it and have it reported; where that may be later, with those behind it: a thread
        that wakes up takes longer than what it then does.
        """
        self._held.append(given)
        if running.told_later:
            return
        self._announced.set(running.value)
        self._submitted.put(self._held)
        self._held = []

    @staticmethod
    def takes(running: Running) -> bool:
        """Whether `submit` can have the operation; otherwise `run` does."""
        return HostTasks.takes(running.op)

    def run(self, running: Running, execute: Callable[[Running], None]) -> None:
        """Execute an operation on this thread after all before it; its waits are reached.

        Raises: what `execute` raises.
        """
        self._announced.set(running.value)
        timeline = self._timelines[Queue.CPU]
        while not timeline.wait(running.value - 1, _LIVENESS_CHECK_S):
            if self._abandoned:
                return
        begun_s = time.perf_counter()
        execute(running)
        end_s = time.perf_counter()
        timeline.set(running.value)
        self._tell(running, Completed(running, begun_s, end_s))

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
            if isinstance(last := together[-1], Running):
                self._wait(last)  # then the others have ended, too
            for given in together:
                self._report_one(given)

    def _report_one(self, given: Running | Completed) -> None:
        ran_here = isinstance(given, Completed)
        running = given.running if ran_here else given
        ended = given if ran_here else self._wait(running)
        with self._lock:
            self._under_way.pop(running.value, None)
            self._inputs.pop(running.value, None)
            abandoned = self._abandoned
        if abandoned:
            return
        if isinstance(ended, Completed):
            self._completed(*ended)
        else:
            self.abandon()
            self._failed(running, ended)

    def _wait(self, running: Running) -> Completed | Exception:
        task = self._under_way[running.value]
        try:
            task.wait()
        except Exception as error:  # noqa: BLE001 - reported as Failed
            return error
        return Completed(running, *task.stamps_s())

    def _point(self, queue: Queue, value: int) -> SignalPoint:
        timeline = self._timelines[queue]
        assert isinstance(timeline, NativeTimeline)
        return timeline.point(value)

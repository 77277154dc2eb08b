"""The paced emulator's CPU queue: a worker thread that does real work once its inputs are there."""

import os
import threading
import time
from typing import Protocol

import torch

from tandem.devices.native_wait import NativeAlarm, sharpen_timers
from tandem.runtime.paced.ledger import HostTask


class TaskSource(Protocol):
    """Where a pool's tasks come from; called on the pool's thread."""

    def look(self) -> float | None:
        """Let be known what has ended by now; returns when there may be more, None: not by time."""
        ...

    def take_task(self, *, ahead: bool = False) -> HostTask | None:
        """The next task, in order; None if there is none now.

        Args:
            ahead: as soon as it is foreseen when it can begin; its `not_before_s` moves until then.
        """
        ...

    def begun(self, task: HostTask, start_s: float) -> None:
        """Work on a task begins; not called where `completed` is at once."""
        ...

    def run_task(self, task: HostTask) -> None:
        """Do the work."""
        ...

    def completed(self, task: HostTask, start_s: float, end_s: float) -> None:
        """A task would be over at `end_s` if it alone used the memory."""
        ...

    def failed(self, task: HostTask | None, error: BaseException) -> None:
        """The work raised, or looking for some did; nothing more will be taken."""
        ...


class HostPool(Protocol):
    """Executes host tasks in order."""

    def start(self, source: TaskSource) -> None:
        """Begin to take tasks."""
        ...

    def wake(self) -> None:
        """Tasks may have become ready."""
        ...

    def close(self) -> None:
        """Stop after the current task."""
        ...


class WorkerPool:
    """One thread on cores of its own.

    Args:
        cores: to run on; None leaves the affinity alone. Kernels use one thread per core.
    """

    def __init__(self, cores: tuple[int, ...] | None = None) -> None:
        self._cores = cores
        self._alarm = NativeAlarm()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, source: TaskSource) -> None:
        """Start the thread."""
        self._thread = threading.Thread(
            target=self._serve, args=(source,), name="tandem-paced-cpu", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """Let the thread look for tasks."""
        self._alarm.ring()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._alarm.ring()
        if self._thread is not None:
            self._thread.join()
        self._alarm.close()

    def _serve(self, source: TaskSource) -> None:
        sharpen_timers()
        if self._cores is not None:
            os.sched_setaffinity(0, self._cores)
        torch.set_num_threads(len(self._cores or (0,)))
        task = None
        try:
            while not self._closing.is_set():
                task = None
                next_s = source.look()
                task = source.take_task(ahead=True)
                if task is None:
                    self._alarm.wait(next_s)
                else:
                    self._run(source, task)
        except Exception as error:  # noqa: BLE001 - reported as Failed
            source.failed(task, error)

    def _run(self, source: TaskSource, task: HostTask) -> None:
        while not self._closing.is_set() and time.perf_counter() < task.not_before_s:
            self._alarm.wait(task.not_before_s)
        begin = time.perf_counter()
        source.begun(task, begin)
        source.run_task(task)
        source.completed(task, begin, time.perf_counter())

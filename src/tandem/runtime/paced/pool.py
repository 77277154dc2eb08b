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

    def take_task(self) -> HostTask | None:
        """The next task, in order; None if there is none now."""
        ...

    def has_work(self, task: HostTask) -> bool:
        """False if no lane takes part: the task is over as soon as its turn comes."""
        ...

    def run_task(self, task: HostTask) -> None:
        """Do the work."""
        ...

    def completed(self, task: HostTask, start_s: float, end_s: float) -> float:
        """Stamp a task; returns when the next one may start at the earliest."""
        ...

    def failed(self, task: HostTask, error: BaseException) -> None:
        """The work raised; nothing more will be taken."""
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
        free_s = 0.0
        while not self._closing.is_set():
            task = source.take_task()
            if task is None:
                self._alarm.wait(None)
                continue
            try:
                free_s = self._run(source, task, max(task.not_before_s, free_s))
            except Exception as error:  # noqa: BLE001 - reported as Failed
                source.failed(task, error)
                return

    def _run(self, source: TaskSource, task: HostTask, due_s: float) -> float:
        if not source.has_work(task):
            return source.completed(task, due_s, due_s)
        while not self._closing.is_set() and time.perf_counter() < due_s:
            self._alarm.wait(due_s)
        begin = time.perf_counter()
        source.run_task(task)
        return source.completed(task, begin, time.perf_counter())

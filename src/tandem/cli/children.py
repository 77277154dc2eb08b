"""Copies of this process, which compute something while it goes on."""

import os
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


class Children:
    """Child processes; leaving the context ends those whose results nobody asked for.

    Where there is one core, or a thread beside this one, which a copy would lack, there are none:
    all is computed here when it is asked for, as is what a child could not.

    Args:
        cores: that this process may use; None: as many as it may.
    """

    def __init__(self, cores: int | None = None) -> None:
        self._cores = len(os.sched_getaffinity(0)) if cores is None else cores
        self._running: dict[int, int] = {}  # ends of pipes, by process

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            os.kill(child, signal.SIGKILL)
        for child, pipe in self._running.items():
            os.close(pipe)
            os.waitpid(child, 0)
        self._running.clear()

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """Computes it in a child from now on; returns what waits for the result, which is pickled
        on its way.
        """
        if self._cores < 2 or threading.active_count() > 1:
            return compute
        ours, theirs = os.pipe()
        child = os.fork()
        if not child:
            _compute(compute, theirs)
        os.close(theirs)
        self._running[child] = ours
        return partial(self._result, child, compute)

    def _result(self, child: int, compute: Callable[[], T]) -> T:
        with os.fdopen(self._running.pop(child), "rb") as pipe:
            found = pipe.read()
        _, status = os.waitpid(child, 0)
        return compute() if status else pickle.loads(found)  # noqa: S301 (our own child's)


def _compute(compute: Callable[[], object], pipe: int) -> None:
    """In the child, which does nothing else, and leaves what it shares with its parent alone."""
    status = 1
    try:
        with os.fdopen(pipe, "wb") as result:
            result.write(pickle.dumps(compute(), pickle.HIGHEST_PROTOCOL))
        status = 0
    finally:
        os._exit(status)

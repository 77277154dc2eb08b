"""Copies of this process, which compute something while it goes on."""

import ctypes
import os
import pickle
import signal
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

T = TypeVar("T")
_PR_SET_PDEATHSIG = 1
"""Of `prctl`, in Linux's `linux/prctl.h`."""


class Children:
    """Child processes; leaving the context ends those whose results nobody asked for.

    Where there is one core, or a thread beside this one, which a copy would lack, or no process may
    begin, there are none: all is computed here when it is asked for, as is what a child could not.

    Args:
        cores: that this process may use; None: as many as it may.
    """

    def __init__(self, cores: int | None = None) -> None:
        self._cores = len(os.sched_getaffinity(0)) if cores is None else cores
        # where each one tells its result
        self._running: dict[int, int] = {}

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            os.kill(child, signal.SIGKILL)
        for child, results in self._running.items():
            os.close(results)
            os.waitpid(child, 0)
        self._running.clear()

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """Computes it in a child from now on; returns what waits for the result."""
        if self._cores < 2 or threading.active_count() > 1:
            return compute
        (ours, theirs), parent = os.pipe(), os.getpid()
        try:
            child = os.fork()
        except OSError:  # as many processes as there may be, or no memory for another one
            os.close(ours)
            os.close(theirs)
            return compute
        if not child:
            _compute(compute, theirs, parent)
        os.close(theirs)
        self._running[child] = ours
        return partial(self._result, child, compute)

    def _result(self, child: int, compute: Callable[[], T]) -> T:
        # until it has told all, leaving the context ends it
        with open(self._running[child], "rb", closefd=False) as told:
            found = told.read()
        os.close(self._running.pop(child))
        os.waitpid(child, 0)
        try:
            return pickle.loads(found)  # noqa: S301 - from a copy of this process
        except (EOFError, pickle.UnpicklingError):  # it failed, or was killed while it told
            return compute()


def _compute(compute: Callable[[], object], results: int, parent: int) -> NoReturn:
    """In the child, which does nothing else, and leaves what it shares with its parent alone."""
    try:
        _end_with(parent)
        with open(results, "wb") as told:
            told.write(pickle.dumps(compute(), pickle.HIGHEST_PROTOCOL))
    finally:
        os._exit(0)


def _end_with(parent: int) -> None:
    """Nobody waits for what this process computes once its parent has ended, however that was: by
    a signal of its own, contexts are not left.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # which had ended before
        os._exit(0)

"""Copies of this process, which compute something while it goes on."""

import os
import threading
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
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
        self._running: dict[BaseProcess, Connection] = {}

    def __enter__(self) -> "Children":
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._running:
            child.kill()
        for child, results in self._running.items():
            results.close()
            child.join()
        self._running.clear()

    def begin(self, compute: Callable[[], T]) -> Callable[[], T]:
        """Computes it in a child from now on; returns what waits for the result."""
        if self._cores < 2 or threading.active_count() > 1:
            return compute
        copies = get_context("fork")
        ours, theirs = copies.Pipe(duplex=False)
        child = copies.Process(target=_compute, args=(compute, theirs), daemon=True)
        child.start()
        theirs.close()
        self._running[child] = ours
        return partial(self._result, child, compute)

    def _result(self, child: BaseProcess, compute: Callable[[], T]) -> T:
        with self._running.pop(child) as results:
            try:
                found = results.recv()
            except (EOFError, OSError):  # it failed, or was killed, before or while it told
                child.join()
                return compute()
        child.join()
        return found


def _compute(compute: Callable[[], object], results: Connection) -> None:
    """In the child, which does nothing else, and leaves what it shares with its parent alone."""
    try:
        results.send(compute())
    finally:
        os._exit(0)

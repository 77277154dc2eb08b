"""Questions for the engine's counters that wait for an answer."""

import itertools
import threading
from concurrent.futures import Future
from typing import Any

from tandem.engine.clients.client import fresh_error
from tandem.spec.errors import EngineDeadError


class PendingStats:
    """Numbered futures; each is resolved once, by an answer or by the engine's death."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._futures: dict[int, Future[dict[str, Any]]] = {}
        self._death: EngineDeadError | None = None

    def open(self) -> "tuple[int, Future[dict[str, Any]]]":
        """A new question's number and future, which has failed already if the engine is dead."""
        future: Future[dict[str, Any]] = Future()
        number = next(self._numbers)
        with self._lock:
            death = self._death
            if death is None:
                self._futures[number] = future
        if death is not None:
            future.set_exception(fresh_error(death))
        return number, future

    def answer(self, number: int, stats: dict[str, Any]) -> None:
        """Resolve one question; unknown numbers are ignored."""
        with self._lock:
            future = self._futures.pop(number, None)
        if future is not None and future.set_running_or_notify_cancel():
            future.set_result(stats)

    def fail_all(self, error: EngineDeadError) -> None:
        """Fail all open and all later questions with `error`."""
        with self._lock:
            self._death = self._death or error
            futures, self._futures = self._futures, {}
        for future in futures.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(fresh_error(error))

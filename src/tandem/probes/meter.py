"""What goes on beside a probe, timed only while the probe runs."""

import math
import time
from collections.abc import Callable
from threading import Lock


class Meter:
    """A load that is timed: what begins after `open` and has ended by `close` counts, since before
    and after that it may be alone.

    It is called by another thread than that which opens and closes it.

    Args:
        load: does something, waits for its end, and returns how many bytes that were.
    """

    def __init__(self, load: Callable[[], int]) -> None:
        self._load = load
        self._lock = Lock()
        self._open_s = math.inf
        self._closed = False
        self._failed = False
        self._size, self._taken_s = 0, 0.0

    def __call__(self) -> None:
        """Do it once."""
        begin_s = time.perf_counter()
        try:
            size = self._load()
        except BaseException:
            self._failed = True  # nobody may wait for it
            raise
        end_s = time.perf_counter()
        with self._lock:
            if begin_s >= self._open_s and not self._closed:
                self._size += size
                self._taken_s += end_s - begin_s

    def open(self) -> None:
        """All has begun that is to go on at once."""
        self._open_s = time.perf_counter()

    def close(self) -> None:
        """Something of it is about to end."""
        with self._lock:
            self._closed = True

    @property
    def counted(self) -> bool:
        """Something has, or nothing will."""
        return self._size > 0 or self._failed

    @property
    def rate(self) -> float:
        """Bytes per second of what counted."""
        return self._size / self._taken_s

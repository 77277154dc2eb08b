"""Wait for a moment or for another thread, natively and to within microseconds.

Python's own sleeps overshoot by milliseconds beside a thread that keeps the interpreter busy. Here
a wait is one `ppoll` on an event descriptor, which ends at a time or when rung, and a short spin of
`sched_yield` calls for the last microseconds; both leave the interpreter to other threads.
"""

import ctypes
import os
import select
import time

_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1
DEFAULT_SPIN_S = 80e-6


class _PollFd(ctypes.Structure):
    _fields_ = (("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class NativeAlarm:
    """An alarm over `time.perf_counter`; waited for by one thread, rung by any.

    Args:
        spin_s: how long before the deadline the sleep ends and the spin begins.
    """

    def __init__(self, spin_s: float = DEFAULT_SPIN_S) -> None:
        self._spin_s = spin_s
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = _PollFd(self._event, select.POLLIN, 0)
        self._spun_s = 0.0

    @property
    def spun_s(self) -> float:
        """Time spent spinning so far: processor time that is no work."""
        return self._spun_s

    def wait(self, deadline_s: float | None) -> None:
        """Sleep until shortly before the deadline, spin until it; return at once when rung."""
        if deadline_s is None:
            self._sleep(None)
            return
        left_s = deadline_s - time.perf_counter()
        if left_s > self._spin_s and self._sleep(left_s - self._spin_s):
            return
        begin = now = time.perf_counter()
        while now < deadline_s:
            self._libc.sched_yield()
            now = time.perf_counter()
        self._spun_s += now - begin

    def _sleep(self, duration_s: float | None) -> bool:
        """True if rung."""
        timeout = None
        if duration_s is not None:
            seconds = int(duration_s)
            timeout = ctypes.byref(_TimeSpec(seconds, int((duration_s - seconds) * 1e9)))
        self._libc.ppoll(ctypes.byref(self._poll), 1, timeout, None)
        if not self._poll.revents:
            return False
        os.eventfd_read(self._event)
        return True

    def ring(self) -> None:
        """Wake the waiting thread."""
        os.eventfd_write(self._event, 1)

    def close(self) -> None:
        """Free the descriptor; no one may wait or ring any more."""
        os.close(self._event)


def sharpen_timers() -> None:
    """Let the calling thread's sleeps end on time: the kernel otherwise adds up to 50 us."""
    libc = ctypes.CDLL(None, use_errno=True)
    slack = ctypes.c_ulong(_SLACK_NS)
    none = ctypes.c_ulong(0)
    libc.prctl(_PR_SET_TIMERSLACK, slack, none, none, none)

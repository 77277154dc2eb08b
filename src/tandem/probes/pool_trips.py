"""What it takes to start work on the native pool from Python, and to hear of its end.

Import this module only if `native.available()`.
"""

import time
from dataclasses import dataclass

from tandem.kernels import _native
from tandem.kernels.native_pool import NativePool, Signal

_GAP_NS = 20_000  # in which the pool's threads come to rest after the round before
_ASLEEP_S = 500e-6  # well beyond the pool's own spinning


@dataclass(frozen=True, slots=True)
class Trip:
    """Nanoseconds from the submission, or the signal, to the start, and to the known end."""

    start_ns: int
    end_ns: int


def submit(pool: NativePool) -> Trip:
    """Hand over nothing, and wait for its end."""
    task, end = _native.nothing(pool.handle), Signal()
    _pass_time(_GAP_NS)
    begin_ns = time.monotonic_ns()
    task.submit((), (end, 1))
    end.wait(1)
    return _trip(task, begin_ns)


def submit_to_sleepers(pool: NativePool) -> Trip:
    """`submit`, once the pool's threads have gone to sleep."""
    Signal().wait(1, _ASLEEP_S)
    return submit(pool)


def raise_signal(pool: NativePool) -> Trip:
    """Submitted before, begun by a signal."""
    task, gate, end = _native.nothing(pool.handle), Signal(), Signal()
    task.submit([(gate, 1)], (end, 1))
    _pass_time(_GAP_NS)
    begin_ns = time.monotonic_ns()
    gate.set(1)
    end.wait(1)
    return _trip(task, begin_ns)


def _trip(task: _native.Task, begin_ns: int) -> Trip:
    end_ns = time.monotonic_ns()
    task.wait()
    return Trip(task.start_ns - begin_ns, end_ns - begin_ns)


def _pass_time(duration_ns: int) -> None:
    """Busy, as a sleep of microseconds would take many times as long."""
    end_ns = time.monotonic_ns() + duration_ns
    while time.monotonic_ns() < end_ns:
        pass

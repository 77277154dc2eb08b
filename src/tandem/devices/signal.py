"""Signals: monotonic counters that order work across queues (contract 2)."""

import threading
from typing import Protocol

_MASK = 0xFFFFFFFF
_HALF = 0x80000000
LONGEST_STAND_S = 60.0
"""An accelerator waits no longer for the CPU's part of a layer, which takes far less."""


class HostSignal(Protocol):
    """A monotonic counter that host threads raise and wait for; see `Signal`."""

    def set(self, value: int) -> None:
        """Raise it and wake waiters."""
        ...

    def reached(self, value: int) -> bool:
        """True if it is at or beyond `value`."""
        ...

    def wait(self, value: int, timeout_s: float | None = None) -> bool:
        """Block until it reaches `value`; False if `timeout_s` passed first."""
        ...


class Signal:
    """A monotonic 32-bit counter that any thread can raise and wait for.

    Values are compared modulo 2**32, so a counter may run for ever as long as no waiter lags by
    more than 2**31. It lives in Python: only its threads see it. CUDA streams order themselves by
    events, which `devices/cuda/` turns into such counters when they have completed; counters in
    memory that native threads can raise come with the native pool (`runtime/timelines.py`).
    """

    __slots__ = ("_condition", "_value")

    def __init__(self, value: int = 0) -> None:
        self._value = value & _MASK
        self._condition = threading.Condition()

    @property
    def value(self) -> int:
        """The counter, 0 to 2**32 - 1."""
        return self._value

    def set(self, value: int) -> None:
        """Raise the counter to `value` and wake waiters.

        Raises:
            ValueError: the counter would go back.
        """
        with self._condition:
            if not reached(value & _MASK, self._value):
                raise ValueError(f"a signal cannot go back from {self._value} to {value & _MASK}")
            self._value = value & _MASK
            self._condition.notify_all()

    def reached(self, value: int) -> bool:
        """True if the counter is at or beyond `value`."""
        return reached(self._value, value & _MASK)

    def wait(self, value: int, timeout_s: float | None = None) -> bool:
        """Block until the counter reaches `value`; False if `timeout_s` passed first."""
        if self.reached(value):
            return True
        with self._condition:
            return self._condition.wait_for(lambda: self.reached(value), timeout_s)


def reached(current: int, value: int) -> bool:
    """True if `current` is at or beyond `value` on the 32-bit circle."""
    return (current - value) & _MASK < _HALF

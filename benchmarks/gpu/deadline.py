"""Time that a part has, and shares of it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock, in seconds."""

    at_s: float
    clock: Callable[[], float] = time.monotonic

    @staticmethod
    def after(seconds: float, clock: Callable[[], float] = time.monotonic) -> "Deadline":
        """So many seconds from now."""
        return Deadline(clock() + seconds, clock)

    @property
    def left_s(self) -> float:
        """Until then; not below 0."""
        return max(0.0, self.at_s - self.clock())

    def share(self, count: int) -> "Deadline":
        """Of what is left, the first of `count` equal parts."""
        return Deadline.after(self.left_s / max(1, count), self.clock)

    def rounds(self, most: int) -> Iterator[int]:
        """Numbers of rounds: one in any case, then as many as will probably end in time."""
        begun_s = self.clock()
        for number in range(most):
            passed_s = self.clock() - begun_s
            if number and (not self.left_s or passed_s / number > self.left_s):
                return
            yield number

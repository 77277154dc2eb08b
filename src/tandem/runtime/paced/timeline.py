"""When the operations of one queue end: the signal values of a paced queue."""

from collections import deque


class Timeline:
    """Ends of a queue's operations in order of submission; ends never decrease.

    The queue's signal has the value `n` from the moment at which operation `n` ends.
    """

    def __init__(self) -> None:
        self._ends: deque[float] = deque()
        self._forgotten = 0
        self._last_s = 0.0

    @property
    def num_resolved(self) -> int:
        """Operations whose end is known."""
        return self._forgotten + len(self._ends)

    @property
    def last_s(self) -> float:
        """End of the latest operation whose end is known."""
        return self._last_s

    def append(self, end_s: float) -> None:
        """The next operation's end has become known.

        Raises:
            ValueError: it would end before its predecessor.
        """
        if end_s < self._last_s:
            raise ValueError(f"an operation cannot end at {end_s}, before {self._last_s}")
        self._ends.append(end_s)
        self._last_s = end_s

    def end(self, value: int) -> float | None:
        """When the signal reaches `value`; None if that is not known yet.

        Values of long ago are as good as 0: whoever asks needs a bound from below only.
        """
        if value <= self._forgotten:
            return 0.0
        if value > self.num_resolved:
            return None
        return self._ends[value - self._forgotten - 1]

    def forget(self, value: int) -> None:
        """Drop ends of operations before `value`, which nothing will ask for."""
        while self._forgotten < value - 1 and self._ends:
            self._ends.popleft()
            self._forgotten += 1

"""Accepted requests that have no row yet, in order of rank."""

from bisect import bisect, bisect_left, insort
from collections.abc import Iterator

from tandem.scheduler.sequence import Sequence


class WaitingQueue:
    """Ordered by (priority, arrival); a preempted sequence returns to its old rank."""

    def __init__(self) -> None:
        self._queue: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._queue)

    def add(self, sequence: Sequence) -> None:
        """Insert by rank."""
        insort(self._queue, sequence, key=lambda s: s.rank)

    def remove(self, sequence: Sequence) -> None:
        """Take out one that is there; no two have the same rank."""
        at = bisect_left(self._queue, sequence.rank, key=lambda s: s.rank)
        assert self._queue[at] is sequence, f"{sequence.request_id} does not wait"
        del self._queue[at]

    def first_of_each_below(self, priority: int) -> list[Sequence]:
        """Of each priority that comes after this one, the first in rank."""
        found: list[Sequence] = []
        while (at := bisect(self._queue, priority, key=lambda s: s.priority)) < len(self._queue):
            found.append(self._queue[at])
            priority = found[-1].priority
        return found

"""How often requests of a low priority are overtaken (invariant 6): ageing, counted in requests.

A request is overtaken whenever one of a higher priority that came later has run and ends, while it
gets no token itself. Once that has happened as often as is allowed, it takes the priority of the
last one that overtook it, and keeps it: it comes before all that came later. Of requests without a
row only the first of each priority is counted for: a long queue of a low priority gets a share, and
does not become a queue of a high one.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tandem.plan.binding import LongArray
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import ARRIVAL_BITS, Sequence
from tandem.scheduler.waiting import WaitingQueue

_ARRIVAL = (1 << ARRIVAL_BITS) - 1


@dataclass(frozen=True, slots=True)
class Overtaking:
    """Counts, and raises priorities.

    Requests that end together are counted at once, since many may end in one step.

    Attributes:
        sequence_of: the sequence in a row.
        most: times that a request is overtaken between two of its tokens, before it is raised.
    """

    rows: RowTable
    waiting: WaitingQueue
    sequence_of: Callable[[int], Sequence]
    most: int
    _ended: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def by(self, sequence: Sequence) -> None:
        """A request that has had a row ends: it counts from the next `settle` on."""
        self._ended.setdefault(sequence.priority, []).append(sequence.arrival)

    def settle(self) -> None:
        """Count those that have ended since the last call."""
        if not self._ended:
            return
        # the lowest first: whoever is raised among those is still overtaken by higher ones
        for priority in sorted(self._ended, reverse=True):
            arrivals = sorted(self._ended[priority])
            self._overtake_waiting(priority, arrivals)
            self._overtake_rows(priority, np.array(arrivals, dtype=np.int64))
        self._ended.clear()

    def _overtake_waiting(self, priority: int, arrivals: list[int]) -> None:
        for behind in self.waiting.first_of_each_below(priority):
            times = len(arrivals) - bisect_right(arrivals, behind.arrival)
            if not times:
                continue
            if len(behind.tokens) != behind.tokens_before:
                behind.overtaken, behind.tokens_before = 0, len(behind.tokens)
            behind.overtaken += times
            if behind.overtaken >= self.most:
                behind.overtaken = 0
                self.waiting.remove(behind)
                behind.priority = priority
                self.waiting.add(behind)

    def _overtake_rows(self, priority: int, arrivals: LongArray) -> None:
        r = self.rows
        rows = r.owned()
        rows = rows[r.order[rows] >> ARRIVAL_BITS > priority]
        if not len(rows):
            return
        times = len(arrivals) - np.searchsorted(arrivals, r.order[rows] & _ARRIVAL, side="right")
        rows, times = rows[times > 0], times[times > 0]
        known = r.known[rows]
        counts = np.where(known == r.tokens_before[rows], r.overtaken[rows], 0) + times
        often = counts >= self.most
        r.tokens_before[rows] = known
        r.overtaken[rows] = np.where(often, 0, counts)
        for row in rows[often].tolist():
            behind = self.sequence_of(row)
            behind.priority = priority
            r.order[row] = behind.order

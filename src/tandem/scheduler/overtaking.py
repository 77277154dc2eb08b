"""How often requests of a low priority are overtaken (invariant 6): ageing, counted in requests.

A request is overtaken whenever one of a higher priority that came later has run and ends, while it
gets no token itself. Once that has happened as often as is allowed, it takes the priority of the
last one that overtook it, and keeps it: it comes before all that came later. Of requests without a
row only the first of each priority is counted for: a long queue of a low priority gets a share, and
does not become a queue of a high one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import ARRIVAL_BITS, Sequence
from tandem.scheduler.waiting import WaitingQueue


@dataclass(frozen=True, slots=True)
class Overtaking:
    """Counts, and raises priorities.

    Attributes:
        sequence_of: the sequence in a row.
        most: times that a request is overtaken between two of its tokens, before it is raised.
    """

    rows: RowTable
    waiting: WaitingQueue
    sequence_of: Callable[[int], Sequence]
    most: int

    def by(self, sequence: Sequence) -> None:
        """A request that had a row ends."""
        priority = sequence.priority
        for behind in self.waiting.first_of_each_below(priority):
            if self._too_often(behind, sequence):
                self.waiting.remove(behind)
                behind.priority = priority
                self.waiting.add(behind)
        for row in self._rows_below(priority):
            behind = self.sequence_of(row)
            if self._too_often(behind, sequence):
                behind.priority = priority
                self.rows.order[row] = behind.order

    def _too_often(self, behind: Sequence, sequence: Sequence) -> bool:
        """Count for one behind; whether it has been overtaken as often as is allowed."""
        if behind.arrival > sequence.arrival:
            return False
        if len(behind.tokens) != behind.tokens_before:
            behind.overtaken, behind.tokens_before = 0, len(behind.tokens)
        behind.overtaken += 1
        if behind.overtaken < self.most:
            return False
        behind.overtaken = 0
        return True

    def _rows_below(self, priority: int) -> Iterator[int]:
        if self.rows.num_free < self.rows.max_rows:
            rows = self.rows.owned()
            yield from rows[self.rows.order[rows] >> ARRIVAL_BITS > priority].tolist()

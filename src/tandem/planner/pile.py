"""Candidates of one kind, the best bound first; bounds are computed as they are needed."""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.planner.candidate import Candidate

_HOPE = 1.01
"""A kind may come so much closer to its bound than it has so far."""

Look = Callable[[Candidate], float | None]


class _Entry(NamedTuple):
    """Ordered by tokens per second, then by what the link carries.

    Attributes:
        number: of a pile's entries, so that candidates are never compared.
        looks: how often the first field has been refined.
    """

    minus_tokens_per_s: float
    streamed: int
    rows: int
    number: int
    candidate: Candidate
    looks: int


class Pile:
    """A heap of candidates.

    Args:
        looks: tokens per second that a candidate cannot exceed, ever closer and dearer, the last
            one its bound; None: it is out of the question.

    Attributes:
        reached: most of its bound that any of them has reached; 0: none was tried.
        most_per_s: of the bounds so far, which the first one's is among.
    """

    def __init__(self, looks: Sequence[Look], reached: float) -> None:
        self.reached = reached
        self.most_per_s = 0.0
        self._looks, self._heap = looks, list[_Entry]()

    def add(self, candidate: Candidate, most_per_s: float) -> None:
        """One more candidate, which cannot exceed `most_per_s`."""
        number = len(self._heap)
        entry = _Entry(-most_per_s, candidate.streamed, candidate.rows, number, candidate, 0)
        heapq.heappush(self._heap, entry)

    @property
    def promise(self) -> float:
        """Tokens per second that the next one may reach; 0: there is none."""
        if not self._settle():
            return 0.0
        hope = min(1.0, self.reached * _HOPE) if self.reached else 1.0
        return -self._heap[0].minus_tokens_per_s * hope

    def take(self) -> tuple[Candidate, float] | None:
        """The next candidate and its bound."""
        if not self._settle():
            return None
        entry = heapq.heappop(self._heap)
        return entry.candidate, -entry.minus_tokens_per_s

    def _settle(self) -> bool:
        """Look at the first ones until one that is bounded stays first; whether there is any."""
        while self._heap and self._heap[0].looks < len(self._looks):
            entry = self._heap[0]
            most_per_s = self._looks[entry.looks](entry.candidate)
            if most_per_s is None:
                heapq.heappop(self._heap)
                continue
            seen = entry._replace(minus_tokens_per_s=-most_per_s, looks=entry.looks + 1)
            heapq.heapreplace(self._heap, seen)
            if seen.looks == len(self._looks):
                self.most_per_s = max(self.most_per_s, most_per_s)
        return bool(self._heap)

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
    """

    def __init__(self, looks: Sequence[Look], reached: float) -> None:
        self.reached = reached
        self._looks, self._heap = looks, list[_Entry]()
        self._taken_per_s = 0.0

    def add(self, candidate: Candidate, most_per_s: float) -> None:
        """One more candidate, which cannot exceed `most_per_s`."""
        number = len(self._heap)
        entry = _Entry(-most_per_s, candidate.streamed, candidate.rows, number, candidate, 0)
        heapq.heappush(self._heap, entry)

    @property
    def most_per_s(self) -> float:
        """Tokens per second that none of them exceeds, those taken included."""
        return max(self._taken_per_s, self._first_per_s)

    @property
    def _first_per_s(self) -> float:
        return -self._heap[0].minus_tokens_per_s if self._heap else 0.0

    def promise(self, least: float = 0.0) -> float:
        """Tokens per second that the next one may reach; 0: there is none.

        Args:
            least: of interest; what is not above it may be found too high, but not above it.
        """
        hope = min(1.0, self.reached * _HOPE) if self.reached else 1.0
        self._settle(least / hope)
        return self._first_per_s * hope

    def next_bound(self, least: float = 0.0) -> float:
        """The next one's bound, likewise."""
        self._settle(least)
        return self._first_per_s

    def take(self) -> tuple[Candidate, float] | None:
        """The next candidate and its bound."""
        self._settle(0.0)
        if not self._heap:
            return None
        entry = heapq.heappop(self._heap)
        bound = -entry.minus_tokens_per_s
        self._taken_per_s = max(self._taken_per_s, bound)
        return entry.candidate, bound

    def _settle(self, least: float) -> None:
        """Look at the first ones until one that is bounded stays first, or none exceeds `least`."""
        while self._heap and self._heap[0].looks < len(self._looks):
            entry = self._heap[0]
            if -entry.minus_tokens_per_s <= least:
                return
            most_per_s = self._looks[entry.looks](entry.candidate)
            if most_per_s is None:
                heapq.heappop(self._heap)
                continue
            seen = entry._replace(minus_tokens_per_s=-most_per_s, looks=entry.looks + 1)
            heapq.heapreplace(self._heap, seen)

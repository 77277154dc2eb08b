"""Candidates of one kind, the best bound first; bounds are computed as they are needed."""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tandem.planner.candidate import Candidate

_HOPE = 1.01
"""A kind may come so much closer to its bound than it has so far."""

FirstLook = Callable[[Candidate, bool], tuple[Candidate, float] | None]
"""At a candidate that is added, or at what it lends: what that is, and its tokens per second."""
Look = Callable[[Candidate], float | None]


class _Entry(NamedTuple):
    """Ordered by tokens per second, then by what the link carries.

    Attributes:
        number: of a pile's entries, so that candidates are never compared.
        looks: how often the first field has been refined. lends: before the first look, whether it
            stands for what the candidate lends.
    """

    minus_tokens_per_s: float
    streamed: int
    rows: int
    number: int
    candidate: Candidate
    looks: int
    lends: bool


class Pile:
    """A heap of candidates.

    Args:
        first: tells what is added from tokens per second alone; None: it is out of the question, or
            lends nothing.
        looks: tokens per second that a candidate cannot exceed, ever closer and dearer, the last
            one its bound; None likewise.

    Attributes:
        reached: most of its bound that any of them has reached; 0: none was tried.
    """

    def __init__(self, first: FirstLook, looks: Sequence[Look], reached: float) -> None:
        self.reached = reached
        self._first, self._looks, self._heap = first, looks, list[_Entry]()
        self._taken_per_s = 0.0

    def add(self, candidate: Candidate, most_per_s: float, lends: bool) -> None:
        """One more candidate, or what it lends, which cannot exceed `most_per_s`."""
        number, rows = len(self._heap), candidate.rows
        entry = _Entry(-most_per_s, candidate.streamed, rows, number, candidate, 0, lends)
        heapq.heappush(self._heap, entry)

    def reaches(self, per_s: float) -> bool | None:
        """Whether any of them, those taken included, may reach so many tokens per second, by a
        first look; None: all are out of the question by that. No more are looked at than that
        takes.
        """
        seen = [-entry.minus_tokens_per_s for entry in self._heap if entry.looks]
        if self._taken_per_s:
            seen.append(self._taken_per_s)
        most_per_s = max(seen, default=None)
        while self._heap and not self._heap[0].looks:
            if most_per_s is not None and (most_per_s >= per_s or self._first_per_s < per_s):
                break
            found = self._look()
            if found is not None:
                most_per_s = max(most_per_s or 0.0, found)
        return None if most_per_s is None else most_per_s >= per_s

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

    def _settle(self, least: float, looks: int | None = None) -> None:
        """Look at the first ones until one that has been looked at so often stays first, or none
        exceeds `least`.

        Args:
            looks: None: as often as can be.
        """
        enough = 1 + len(self._looks) if looks is None else looks
        while self._heap and self._heap[0].looks < enough:
            entry = self._heap[0]
            if -entry.minus_tokens_per_s <= least:
                return
            self._look()

    def _look(self) -> float | None:
        """At the first one: what it then promises, or None if it is out of the question."""
        seen = self._seen(self._heap[0])
        if seen is None:
            heapq.heappop(self._heap)
            return None
        heapq.heapreplace(self._heap, seen)
        return -seen.minus_tokens_per_s

    def _seen(self, entry: _Entry) -> _Entry | None:
        """After one more look."""
        if not entry.looks:
            found = self._first(entry.candidate, entry.lends)
        else:
            most_per_s = self._looks[entry.looks - 1](entry.candidate)
            found = None if most_per_s is None else (entry.candidate, most_per_s)
        if found is None:
            return None
        candidate, most_per_s = found
        _, streamed, rows, number, _, looks, lends = entry
        return _Entry(-most_per_s, streamed, rows, number, candidate, looks + 1, lends)

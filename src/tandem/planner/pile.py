"""Candidates of one kind, the best bound first; bounds are computed as they are needed."""

import heapq
from collections.abc import Callable
from typing import NamedTuple

from tandem.planner.candidate import Candidate

_HOPE = 1.01
"""A kind may come so much closer to its bound than it has so far."""


class _Entry(NamedTuple):
    """Ordered by tokens per second, then by what the link carries.

    Attributes:
        number: of a pile's entries, so that candidates are never compared.
        bounded: the first field is the bound, not only an estimate from above.
    """

    minus_tokens_per_s: float
    streamed: int
    rows: int
    number: int
    candidate: Candidate
    bounded: bool


class Pile:
    """A heap of candidates.

    Args:
        bound_of: tokens per second that a candidate cannot exceed; None: it is out of the question.

    Attributes:
        reached: most of its bound that any of them has reached; 0: none was tried.
        most_per_s: of the bounds so far, which the first one's is among.
    """

    def __init__(self, bound_of: Callable[[Candidate], float | None], reached: float) -> None:
        self.reached = reached
        self.most_per_s = 0.0
        self._bound_of, self._heap = bound_of, list[_Entry]()

    def add(self, candidate: Candidate, most_per_s: float) -> None:
        """One more candidate, whose bound is not above `most_per_s`."""
        number = len(self._heap)
        entry = _Entry(-most_per_s, candidate.streamed, candidate.rows, number, candidate, False)
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
        """Bound the first ones until one stays first; whether there is any."""
        while self._heap and not self._heap[0].bounded:
            entry = heapq.heappop(self._heap)
            bound = self._bound_of(entry.candidate)
            if bound is not None:
                self.most_per_s = max(self.most_per_s, bound)
                bounded = entry._replace(minus_tokens_per_s=-bound, bounded=True)
                heapq.heappush(self._heap, bounded)
        return bool(self._heap)

"""How a batch job goes: its passes and its programs over prompts, by how many sequences they have.

Sequences enter as the engine has them enter (`scheduler/blocks`): the longest first, at once where
no weights come, else when that is due.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from tandem.plan.refill import is_due


class Alike(NamedTuple):
    """Passes with nearly as many sequences, or programs over prompts with nearly as many of those:
    fewer than twice as many as any of them.

    Attributes:
        number: of passes. rows: sequences, in the mean.
    """

    number: float
    rows: float


class Course(NamedTuple):
    """How a job goes, most sequences first.

    Attributes:
        passes: that give each sequence a token. fills: programs over prompts.
    """

    passes: tuple[Alike, ...]
    fills: tuple[Alike, ...]


def course(longest_first: Iterable[float], places: int, *, streams: bool) -> Course:
    """Of requests that need so many passes after their prompts were read.

    Args:
        streams: weights come for every program, so that places stand empty until it is worth one
            more.
    """
    job = _Job(deque(longest_first), places)
    while job.waiting or job.ends:
        if job.waiting and job.free and (not streams or job.is_due()):
            job.fill()
        else:
            job.go_on(stops=streams)
    return Course(_grouped(job.passes), _grouped(job.fills))


class _Job:
    """A job under way.

    Args:
        waiting: passes of each request that has not entered.
    """

    def __init__(self, waiting: deque[float], places: int) -> None:
        self.waiting, self._places = waiting, places
        self.free = places
        self.ends: list[float] = []
        self.passes: list[Alike] = []
        self.fills: list[Alike] = []
        self._now = self._last = self._idle_tokens = 0.0

    def is_due(self) -> bool:
        """Whether those that wait enter before the next pass."""
        if not self.ends:
            return True
        return is_due(self._idle_tokens, self._places, self.free, self._last - self._now)

    def fill(self) -> None:
        """All that have a place enter; those that need no pass are over."""
        entering = [self.waiting.popleft() for _ in range(min(self.free, len(self.waiting)))]
        self.fills.append(Alike(1, len(entering)))
        for passes in filter(None, entering):
            heapq.heappush(self.ends, self._now + passes)
            self.free -= 1
        self._last = max(self._last, self._now + entering[0])
        self._idle_tokens = 0.0

    def go_on(self, *, stops: bool) -> None:
        """To the next end of sequences; or till those that wait may enter, if that stops it."""
        passes = self.ends[0] - self._now
        if stops and self.waiting and self.free:
            lacking = max(1, math.ceil((self._places - self._idle_tokens) / self.free))
            if lacking < passes and self._is_due_after(lacking):
                passes = lacking
            self._idle_tokens += passes * self.free
        self.passes.append(Alike(passes, len(self.ends)))
        self._now += passes
        while self.ends and self.ends[0] <= self._now:
            heapq.heappop(self.ends)
            self.free += 1

    def _is_due_after(self, passes: int) -> bool:
        left_tokens = self._last - self._now - passes
        return is_due(self._places, self._places, self.free, left_tokens)


def _grouped(each: list[Alike]) -> tuple[Alike, ...]:
    found = list[Alike]()
    most_first = sorted(each, key=lambda one: -one.rows)
    for _, alike in groupby(most_first, key=lambda one: math.ceil(math.log2(one.rows))):
        together = list(alike)
        number = sum(one.number for one in together)
        found.append(Alike(number, sum(one.number * one.rows for one in together) / number))
    return tuple(found)

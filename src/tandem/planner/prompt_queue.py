"""Requests that come one by one, find a place or wait for one, and are read by sweeps two of which
are in flight.

Prompts that come during a sweep are read together, in the sweep after the one that has been
submitted by then; that takes the longer the more of them there are, and the longer it takes the
more come meanwhile. A request that finds all places taken waits until one has ended.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

SweepWithPromptsS = Callable[[float], float]
"""Seconds of a sweep that reads so many tokens of prompts."""


@dataclass(frozen=True, slots=True)
class Home:
    """Where requests have places.

    Attributes:
        places: of those that run at once.
        sweep_s: of a sweep that reads prompts of such requests alone.
        token_s: from one token of a request to the next.
    """

    places: int
    sweep_s: SweepWithPromptsS
    token_s: float


@dataclass(slots=True)
class _Request:
    """One that waits, or is being read.

    Attributes:
        left: tokens of its prompt that no sweep has taken yet. later: tokens after its first.
        home: in which it has a place.
    """

    arrival_s: float
    left: float
    later: float
    home: int = 0


class PromptQueue:
    """What waits, and what is in flight.

    Args:
        homes: the first with a free place takes who comes.
        room: tokens of prompts in a sweep.

    Attributes:
        ttfts_s: from a request's arrival to its first token, of those that have been read.
    """

    def __init__(self, homes: Sequence[Home], room: int) -> None:
        self._homes, self._room = homes, room
        self._free = [home.places for home in homes]
        self._waiting: deque[_Request] = deque()
        self._reading: deque[_Request] = deque()
        self._ends: list[tuple[float, int]] = []  # of those that decode, and their homes; a heap
        self._now_s = self._end_s = self._runs_until_s = 0.0
        self._reads = False
        self.ttfts_s: list[float] = []

    def arrive(self, arrival_s: float, tokens: float, later: float) -> None:
        """Go on to when a request comes.

        Args:
            tokens: of its prompt. later: that it generates after its first.
        """
        self._advance(arrival_s)
        self._waiting.append(_Request(arrival_s, tokens, later))

    def finish(self) -> None:
        """Read all that wait."""
        self._advance(math.inf)

    def _advance(self, until_s: float) -> None:
        """Submit all sweeps before then."""
        while self._now_s < until_s:
            self._seat()
            if self._reading:
                self._read()
            elif self._ends and (self._waiting or until_s < math.inf):
                self._decode(until_s)
            else:
                self._now_s = self._end_s = until_s

    def _seat(self) -> None:
        """Whose ends are known leave their places, and who waits takes them."""
        while self._ends and self._ends[0][0] <= self._now_s:
            self._free[heappop(self._ends)[1]] += 1
        for home in range(len(self._homes)):
            while self._waiting and self._free[home]:
                self._free[home] -= 1
                self._waiting[0].home = home
                self._reading.append(self._waiting.popleft())

    def _read(self) -> None:
        start_s, left, ended = max(self._now_s, self._end_s), float(self._room), list[_Request]()
        taken_of = [0.0] * len(self._homes)
        while self._reading and left > 0:
            request = self._reading[0]
            taken = min(request.left, left)
            request.left -= taken
            left -= taken
            taken_of[request.home] += taken
            if request.left <= 0:
                ended.append(self._reading.popleft())
        self._end_s = start_s + self._reading_s(taken_of)
        for request in ended:
            self._decodes(request)
        # the next one is submitted when this one begins
        self._now_s, self._reads = start_s, True

    def _reading_s(self, taken_of: Sequence[float]) -> float:
        """Of a sweep that reads tokens for several homes: as one for each, by what it reads."""
        taken = sum(taken_of)
        each = zip(self._homes, taken_of, strict=True)
        return sum(part / taken * home.sweep_s(taken) for home, part in each if part)

    def _decodes(self, request: _Request) -> None:
        """From its first token, now, to its last."""
        self.ttfts_s.append(self._end_s - request.arrival_s)
        end_s = self._end_s + request.later * self._homes[request.home].token_s
        heappush(self._ends, (end_s, request.home))
        self._runs_until_s = max(self._runs_until_s, end_s)

    def _decode(self, until_s: float) -> None:
        """Sweeps without prompts: one, or as many as there are in between."""
        start_s, decode_s = max(self._now_s, self._end_s), self._homes[0].sweep_s(0)
        next_s = self._ends[0][0] if self._waiting else self._runs_until_s
        sweeps = 1 if self._reads else max(1, int((min(until_s, next_s) - start_s) / decode_s))
        self._end_s = start_s + sweeps * decode_s
        self._now_s, self._reads = self._end_s - decode_s, False

"""Requests that come one by one, find a place or wait for one, and are read by sweeps two of which
are in flight.

Prompts that come during a sweep are read together, in the sweep after the one that has been
submitted by then; that takes the longer the more of them there are, and the longer it takes the
more come meanwhile. A request that finds all places taken waits until one has ended.
"""

import math
from collections import deque
from collections.abc import Sequence

from tandem.planner.queue_places import Arrived, Home, Places


class PromptQueue:
    """What waits, and what is in flight.

    Args:
        homes: the first with room takes who comes, one after the other.
        room: tokens of prompts in a sweep. block_size: tokens of a KV block.

    Attributes:
        waited: requests that found no place. ttfts_s: from a request's arrival to its first token,
            of those that have been read.
    """

    def __init__(self, homes: Sequence[Home], room: int, block_size: int = 1) -> None:
        self._homes, self._room = homes, room
        self._places = Places(homes, block_size)
        self._waiting: deque[Arrived] = deque()
        self._reading: deque[Arrived] = deque()
        self._now_s = self._end_s = self._runs_until_s = 0.0
        self._reads = False
        self._came = self._looked_at = 0
        self.waited: int = 0
        self.ttfts_s: list[float] = []

    def arrive(self, arrival_s: float, tokens: float, later: float) -> None:
        """Go on to when a request comes.

        Args:
            tokens: of its prompt. later: that it generates after its first.
        """
        self._advance(arrival_s)
        self._came += 1
        self._waiting.append(Arrived(arrival_s, tokens, later, tokens))

    def finish(self) -> None:
        """Read all that wait."""
        self._advance(math.inf)

    def _advance(self, until_s: float) -> None:
        """Submit all sweeps before then."""
        while self._now_s < until_s:
            self._seat()
            if self._reading:
                self._fill(until_s)
                self._read()
            elif self._places.next_s < math.inf and (self._waiting or until_s < math.inf):
                self._decode(until_s)
            else:
                self._now_s = self._end_s = until_s

    def _seat(self) -> None:
        """Whose ends are known leave their places, and who waits takes them."""
        self._places.go_on(self._now_s)
        while self._waiting and self._places.seat(self._waiting[0]):
            self._reading.append(self._waiting.popleft())
        self.waited += min(len(self._waiting), self._came - self._looked_at)
        self._looked_at = self._came

    def _fill(self, until_s: float) -> None:
        """Of a long prompt, all sweeps but one that it fills by itself, before who waits may have a
        place.
        """
        request, start_s = self._reading[0], max(self._now_s, self._end_s)
        until_s = min(until_s, self._places.next_s) if self._waiting else until_s
        sweeps = math.ceil(request.left / self._room) - 2
        if sweeps < 1 or start_s >= until_s:
            return
        sweep_s = self._homes[request.home].sweep_s(self._room)
        sweeps = int(min(sweeps, (until_s - start_s) / sweep_s))
        if sweeps:
            request.left -= sweeps * self._room
            self._end_s = start_s + sweeps * sweep_s
            self._now_s, self._reads = self._end_s - sweep_s, True

    def _read(self) -> None:
        start_s, left, ended = max(self._now_s, self._end_s), float(self._room), list[Arrived]()
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
        taken = min(sum(taken_of), self._room)  # sums of fractions may be more
        each = zip(self._homes, taken_of, strict=True)
        return sum(part / taken * home.sweep_s(taken) for home, part in each if part)

    def _decodes(self, request: Arrived) -> None:
        """From its first token, now, to its last."""
        self.ttfts_s.append(self._end_s - request.arrival_s)
        end_s = self._end_s + request.later * self._homes[request.home].token_s
        self._places.decodes(request, self._end_s, end_s, self._homes[0].sweep_s(0))
        self._runs_until_s = max(self._runs_until_s, end_s)

    def _decode(self, until_s: float) -> None:
        """Sweeps without prompts: one, or as many as there are in between."""
        start_s, decode_s = max(self._now_s, self._end_s), self._homes[0].sweep_s(0)
        next_s = self._places.next_s if self._waiting else self._runs_until_s
        sweeps = 1 if self._reads else max(1, int((min(until_s, next_s) - start_s) / decode_s))
        self._end_s = start_s + sweeps * decode_s
        self._now_s, self._reads = self._end_s - decode_s, False

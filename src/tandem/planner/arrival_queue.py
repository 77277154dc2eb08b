"""Requests that come over time, find a place or wait for one, are read, and decode, by sweeps two
of which are in flight.

Prompts that come during a sweep are read together, in the sweep after the one that has been
submitted by then; that takes the longer the more of them there are, and the longer it takes the
more come meanwhile. A request that finds all places taken waits until one has ended. How long that
takes depends on who runs beside it, which no mean tells: sweeps of few requests are short, and so
these remain few.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Protocol

from tandem.planner.queue_places import Arrived, Home, Places
from tandem.spec.workload import RequestShape

_ROUNDING = 1e-9
"""Of a token."""
_WAITS = 1.01
"""Times as long as its weights' way, what a sweep takes at most that waits for them."""


class SweepPrices(Protocol):
    """What sweeps take and give, by the rows that decode: those on the device, and on the host."""

    @property
    def moved_s(self) -> float:
        """For which the weights are on their way that each sweep brings, whoever is in it."""
        ...

    @property
    def ahead_s(self) -> float:
        """Of that, what there is room for before the sweep begins that needs it."""
        ...

    def seconds(self, here: int, there: int, read: Sequence[int]) -> float:
        """Of one that reads so many tokens of prompts in each home; none: it only decodes."""
        ...

    def tokens_of_hosted(self, here: int, there: int, *, reads: bool) -> float:
        """Of each row on the host, that one gives in the mean."""
        ...

    def waits_of_hosted(self, there: int) -> float:
        """Tokens of the others that pass, in the mean, until one that comes to the host decodes."""
        ...

    def room(self, here: int, there: int) -> int:
        """Tokens of prompts that one has room for beside them."""
        ...


@dataclass(frozen=True, slots=True)
class Lived:
    """Requests that have come and ended.

    Attributes:
        requests: in order of arrival. end_s: of the last token.
        reading_share: of the sweeps, those that read prompts.
    """

    requests: Sequence[Arrived]
    end_s: float
    reading_share: float


class ArrivalQueue:
    """Who waits, who is read, who decodes, and what is in flight.

    Args:
        homes: the first with room takes who comes, one after the other.
        block_size: tokens of a KV block.
    """

    def __init__(self, homes: Sequence[Home], prices: SweepPrices, block_size: int = 1) -> None:
        self._homes, self._prices = homes, prices
        self._places = Places(homes, block_size)
        self._coming, self._waiting = deque[Arrived](), deque[Arrived]()
        self._reading = deque[Arrived]()
        self._leaving = list[tuple[int, int, Arrived]]()  # by the first sweep that decodes them
        self._here = list[tuple[int, int, Arrived]]()  # by the sweep of their last token
        # by how many tokens a row on the host will have been given since the beginning
        self._there = list[tuple[float, int, Arrived]]()
        self._given = 0.0
        self._sweep = self._reads = self._count = 0
        self._submit_s = self._end_s = 0.0
        self._ahead_s = prices.ahead_s

    def live_through(self, shapes: Sequence[RequestShape]) -> Lived:
        """All of these, in order of arrival."""
        requests = [
            Arrived(each.arrival_s, each.prompt_tokens, each.generated_tokens - 1)
            for each in shapes
        ]
        self._coming.extend(requests)
        while self._submit():
            pass
        end_s = max(request.end_s for request in requests)
        return Lived(requests, end_s, self._reads / self._sweep)

    def _submit(self) -> bool:
        """The next sweeps, or nothing until something comes; False if nothing will."""
        self._seat()
        if self._reading:
            self._read()
        elif self._here or self._there:
            self._advance(max(1, int(min(self._until_news()))))
        elif self._leaving or self._waiting:  # nothing is in flight, and all is known
            known = [each for each in (self._places.next, self._first_to_begin) if each is not None]
            self._sweep, self._submit_s = min(known), max(self._submit_s, self._end_s)
        elif self._coming:
            self._submit_s = max(self._submit_s, self._coming[0].arrival_s)
            self._ahead_s = self._prices.ahead_s
        else:
            return False
        return True

    @property
    def _first_to_begin(self) -> int | None:
        return self._leaving[0][0] if self._leaving else None

    def _seat(self) -> None:
        """Whose ends are known leave their places, and who waits takes them."""
        self._places.go_on(self._sweep, self._given)
        while self._leaving and self._leaving[0][0] <= self._sweep:
            self._decodes(heappop(self._leaving)[2])
        while self._coming and self._coming[0].arrival_s <= self._submit_s:
            self._waiting.append(self._coming.popleft())
        while self._waiting and self._places.seat(self._waiting[0]):
            self._reading.append(self._waiting.popleft())

    def _decodes(self, request: Arrived) -> None:
        """From the next sweep on."""
        self._count += 1
        self._places.decodes(request)
        if request.hosted:
            waits = self._prices.waits_of_hosted(len(self._there))
            end = self._given + waits + request.later
            heappush(self._there, (end, self._count, request))
        else:
            heappush(self._here, (self._sweep + request.later - 1, self._count, request))

    def _until_news(self) -> Iterator[float]:
        """Sweeps until one ends a request, or decodes or reads another's prompt, if all only decode
        until then.
        """
        yield from self._until_ends(reads=False)
        if self._waiting:
            if (freed := self._places.next) is not None:
                yield freed - self._sweep
        elif self._coming:
            start_s = max(self._submit_s, self._end_s)
            sweep_s = self._prices.seconds(len(self._here), len(self._there), ())
            # each is submitted when the one before it begins
            yield math.ceil((self._coming[0].arrival_s - start_s) / sweep_s) + 1

    def _until_ends(self, *, reads: bool) -> Iterator[float]:
        if self._here:
            yield self._here[0][0] - self._sweep + 1
        if self._there:
            left = self._there[0][0] - self._given - _ROUNDING
            yield math.ceil(left / self._tokens_of_hosted(reads=reads))
        if self._leaving:
            yield self._leaving[0][0] - self._sweep

    def _tokens_of_hosted(self, *, reads: bool) -> float:
        return self._prices.tokens_of_hosted(len(self._here), len(self._there), reads=reads)

    def _read(self) -> None:
        """A sweep with as much of prompts as it has room for; of a long one, all that it fills by
        itself before something else happens.
        """
        room = self._prices.room(len(self._here), len(self._there))
        start_s, first = max(self._submit_s, self._end_s), self._reading[0]
        read, ended = [0] * len(self._homes), list[Arrived]()
        if first.left > room:
            sweeps = min(-(-first.left // room) - 1, *self._until_ends(reads=True), math.inf)
            whole = max(1, int(sweeps))
            first.left -= whole * room
            read[first.read_in] = room
            self._begin(first, start_s)
            self._advance(whole, read)
            return
        while self._reading and room:
            request = self._reading[0]
            taken = min(request.left, room)
            request.left -= taken
            room -= taken
            read[request.read_in] += taken
            self._begin(request, start_s)
            if not request.left:
                ended.append(self._reading.popleft())
        self._advance(1, read)
        for request in ended:
            self._first_token(request)

    def _begin(self, request: Arrived, start_s: float) -> None:
        if request.turn_s < 0:
            request.turn_s = start_s

    def _first_token(self, request: Arrived) -> None:
        """By the last sweep."""
        request.first_s = self._end_s
        begins = self._places.read(request, self._sweep - 1)
        if not request.later:
            self._ends(request)
        elif begins <= self._sweep:
            self._decodes(request)
        else:
            self._count += 1
            heappush(self._leaving, (begins, self._count, request))

    def _advance(self, sweeps: int, read: Sequence[int] = ()) -> None:
        """By so many that are alike."""
        here, there = len(self._here), len(self._there)
        start_s = max(self._submit_s, self._end_s)
        sweep_s = self._prices.seconds(here, there, read)
        if there:
            self._given += sweeps * self._tokens_of_hosted(reads=bool(read))
        self._end_s = start_s + sweeps * sweep_s - self._saved_s(sweeps, sweep_s)
        self._submit_s = self._end_s - sweep_s
        self._sweep += sweeps
        self._reads += sweeps * bool(read)
        while self._here and self._here[0][0] < self._sweep:
            self._ends(heappop(self._here)[2])
        while self._there and self._there[0][0] <= self._given + _ROUNDING:
            self._ends(heappop(self._there)[2])

    def _saved_s(self, sweeps: int, sweep_s: float) -> float:
        """By weights that came while a sweep before these waited for none."""
        if not self._prices.ahead_s:
            return 0.0
        idle_s = sweep_s - self._prices.moved_s
        if sweep_s > _WAITS * self._prices.moved_s:
            self._ahead_s = min(self._prices.ahead_s, self._ahead_s + sweeps * idle_s)
            return 0.0
        saved_s, self._ahead_s = self._ahead_s, 0.0
        return saved_s

    def _ends(self, request: Arrived) -> None:
        """With the last sweep."""
        request.end_s = self._end_s
        self._places.ended(request, self._sweep - 1)

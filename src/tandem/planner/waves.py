"""How long a job takes whose requests are all there at once, lived through in coarse steps.

They begin together, grow in step, and come near their ends together: memory runs out, the last are
preempted and computed again, and those that follow are in step, too. A steady state knows nothing
of it. Here requests are admitted, grow and are preempted as the scheduler has it, but up to a block
of tokens at a time, and sweeps take as long as a few that were timed say.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.memory.growth_reserve import growth_reserve
from tandem.spec.workload import RequestShape

SweepS = Callable[[float, float, float], float]
"""Seconds of a sweep with so many tokens in KV on the device and on the host that it attends to,
and so many tokens of prompts.
"""


@dataclass(frozen=True, slots=True)
class Home:
    """Where requests lie.

    Attributes:
        blocks: of its pool. most: requests that may be there.
        reserves: whether the growth of those that run is kept free while another one begins.
        sweeps_per_token: of a request there.
    """

    blocks: int
    most: int
    reserves: bool
    sweeps_per_token: float = 1.0


@dataclass(frozen=True, slots=True)
class Wave:
    """What an engine admits by, in blocks of `block_size` tokens.

    Attributes:
        homes: the device and the host; requests go to the first that has room.
        places: requests that run at once. prompt_tokens: of a sweep, at most.
    """

    homes: tuple[Home, Home]
    places: int
    block_size: int
    prompt_tokens: int

    def job_s(self, shapes: Sequence[RequestShape], sweep_s: SweepS) -> float:
        """Until the last of these requests has ended."""
        return _Job(self, shapes, sweep_s).run()


@dataclass(slots=True)
class _Row:
    """A request that runs.

    Attributes:
        tokens: whose KV it has, or will have once its prompt has been read. end: tokens at its end.
        begins: sweep before which it reads.
    """

    number: int
    tokens: float
    end: int
    home: int
    begins: float


class _Job:
    def __init__(self, wave: Wave, shapes: Sequence[RequestShape], sweep_s: SweepS) -> None:
        self._wave, self._sweep_s = wave, sweep_s
        # first come, first served: from the end
        self._waiting = [
            (-number, float(shape.prompt_tokens), shape.prompt_tokens + shape.generated_tokens - 1)
            for number, shape in enumerate(shapes)
        ][::-1]
        self._rows: list[_Row] = []
        self._free = [home.blocks for home in wave.homes]
        # what no home holds lies in several: it fills the largest one
        self._most_blocks = max(self._free)
        self._sweep = self._read_until = 0.0

    def run(self) -> float:
        time_s = 0.0
        while self._rows or self._waiting:
            self._admit()
            assert self._rows, "a request fits no home alone"
            sweeps = self._until_event()
            self._grow(sweeps)
            time_s += self._seconds(sweeps)
            self._advance(sweeps)
        return time_s

    def _blocks(self, tokens: float) -> int:
        return min(max(1, math.ceil(tokens / self._wave.block_size)), self._most_blocks)

    def _admit(self) -> None:
        while self._waiting and len(self._rows) < self._wave.places:
            number, tokens, end = self._waiting[-1]
            need = self._blocks(tokens)
            home = self._home(need, self._blocks(end))
            if home is None:
                return
            self._waiting.pop()
            self._free[home] -= need
            reading = max(1.0, tokens / self._wave.prompt_tokens)
            behind = max(self._sweep, self._read_until) + tokens / self._wave.prompt_tokens
            self._read_until = behind
            begins = max(behind, self._sweep + reading)
            self._rows.append(_Row(-number, tokens, end, home, begins))

    def _home(self, need: int, longest: int) -> int | None:
        for number, home in enumerate(self._wave.homes):
            there = sum(row.home == number for row in self._rows)
            kept = growth_reserve(len(self._rows), home.blocks) if home.reserves else 0
            holds = longest <= home.blocks and need + kept <= self._free[number]
            if there < home.most and holds:
                return number
        return None

    def _until_event(self) -> float:
        """Sweeps until a request ends or has read its prompt, or one may begin a block."""
        pace = [home.sweeps_per_token for home in self._wave.homes]
        sweeps = min(
            max(row.begins - self._sweep, 0.0) + (row.end - row.tokens) * pace[row.home]
            for row in self._rows
        )
        if self._read_until > self._sweep:
            sweeps = min(sweeps, math.ceil(self._read_until - self._sweep))
        return max(1.0, min(sweeps, self._wave.block_size))

    def _gained(self, row: _Row, sweeps: float) -> float:
        """Tokens that a row decodes."""
        decoding = min(sweeps, max(0.0, self._sweep + sweeps - row.begins))
        return min(decoding / self._wave.homes[row.home].sweeps_per_token, row.end - row.tokens)

    def _grow(self, sweeps: float) -> None:
        """Give rows their next blocks, in order; what is short is taken from those behind."""
        self._rows.sort(key=lambda row: row.number)
        place = 0
        while place < len(self._rows):
            row = self._rows[place]
            after = row.tokens + self._gained(row, sweeps)
            need = self._blocks(after) - self._blocks(row.tokens)
            while need > self._free[row.home] and self._preempted(row.home, place):
                pass
            if need > self._free[row.home]:
                self._preempt(place)
                continue
            self._free[row.home] -= need
            place += 1
        self._waiting.sort()

    def _preempted(self, home: int, behind: int) -> bool:
        """Take the memory of the last row there; False if there is none behind that place."""
        for place in range(len(self._rows) - 1, behind, -1):
            if self._rows[place].home == home:
                self._preempt(place)
                return True
        return False

    def _preempt(self, place: int) -> None:
        row = self._rows.pop(place)
        self._free[row.home] += self._blocks(row.tokens)
        self._waiting.append((-row.number, row.tokens, row.end))

    def _seconds(self, sweeps: float) -> float:
        """Of so many sweeps, with the rows as they are half-way."""
        tokens = [0.0, 0.0]
        for row in self._rows:
            gained = self._gained(row, sweeps)
            share = min(1.0, max(0.0, (self._sweep + sweeps - row.begins) / sweeps))
            tokens[row.home] += share * (row.tokens + gained / 2)
        read = min(max(0.0, self._read_until - self._sweep), sweeps) / sweeps
        return sweeps * self._sweep_s(tokens[0], tokens[1], read * self._wave.prompt_tokens)

    def _advance(self, sweeps: float) -> None:
        kept: list[_Row] = []
        for row in self._rows:
            row.tokens += self._gained(row, sweeps)
            if row.tokens < row.end or row.begins > self._sweep + sweeps:
                kept.append(row)
            else:
                self._free[row.home] += self._blocks(row.tokens)
        self._rows = kept
        self._sweep += sweeps

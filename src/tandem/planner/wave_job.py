"""The loop of a job that is lived through, as `waves.py` says: what the compiled one is compared
with, to the bit, and what runs where nothing could be compiled.
"""

import math
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tandem.memory.growth_reserve import growth_reserve
from tandem.spec.workload import RequestShape

if TYPE_CHECKING:
    from tandem.planner.waves import SweepS, Wave

_ROUNDING = 1e-6
"""Of a token."""


@dataclass(slots=True)
class _Row:
    """A request that runs.

    Attributes:
        tokens: whose KV it has, or will have once its prompt has been read. end: tokens at its end.
        pace: sweeps for a token. begins: sweep before which it reads. blocks: that it holds.
        gain: tokens of the next step.
    """

    number: int
    tokens: float
    end: int
    home: int
    pace: float
    begins: float
    blocks: int
    gain: float = 0.0

    def gained(self, sweep: float, sweeps: float) -> float:
        """Tokens that it decodes in so many sweeps from this one on."""
        decoding = sweep + sweeps - self.begins
        if decoding <= 0:
            return 0.0
        gained = (sweeps if decoding > sweeps else decoding) / self.pace
        left = self.end - self.tokens
        return left if gained > left else gained


class WaveJob:
    """Requests that run, those that wait, and the memory that is left."""

    def __init__(self, wave: "Wave", shapes: Sequence[RequestShape], sweep_s: "SweepS") -> None:
        self._wave, self._sweep_s = wave, sweep_s
        # first come, first served: from the end
        self._waiting = [
            (-number, float(shape.prompt_tokens), shape.prompt_tokens + shape.generated_tokens - 1)
            for number, shape in enumerate(shapes)
        ][::-1]
        self._rows: list[_Row] = []  # by number
        self._there = [0, 0]
        self._free = [home.blocks for home in wave.homes]
        self._prompt_tokens = sum(shape.prompt_tokens for shape in shapes) / len(shapes)
        # what no home holds lies in several: it fills the largest one that anybody may be in
        self._most_blocks = max(home.blocks for home in wave.homes if home.most)
        self._sweep = self._read_until = 0.0
        # until when prompts are read, and tokens of them per sweep
        self._reading: deque[tuple[float, float]] = deque()
        self._time_s = 0.0
        self.begun_s: list[float] = [-1.0] * len(shapes)
        """By number, when a request has begun for the first time."""
        self._first_s: list[float] = [-1.0] * len(shapes)
        self.decoding_s: list[float] = [0.0] * len(shapes)
        """By number, from a request's first token to its last."""
        self.homes: list[int] = [0] * len(shapes)
        """By number, where it has ended."""

    def run(self) -> float:
        """Seconds until the last request has ended."""
        while self._rows or self._waiting:
            self._admit()
            assert self._rows, "a request fits no home alone"
            sweeps = self._until_event()
            self._grow(sweeps)
            self._time_s += self._advance(sweeps)
        return self._time_s

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
            if self.begun_s[-number] < 0:
                self.begun_s[-number] = self._time_s
            self._free[home] -= need
            self._there[home] += 1
            pace = self._wave.homes[home].sweeps_per_token
            row = _Row(-number, tokens, end, home, pace, self._begins(tokens, home), need)
            insort(self._rows, row, key=lambda row: row.number)

    def _begins(self, tokens: float, home: int) -> float:
        """Sweep before which a request reads so many, behind the others' prompts, and leaves."""
        there = self._wave.homes[home]
        reads = max(tokens / self._wave.prompt_tokens, there.sweeps_per_prompt)
        if self._read_until < self._sweep:
            self._reading.append((self._sweep, 0.0))
        self._read_until = max(self._sweep, self._read_until) + reads
        self._reading.append((self._read_until, tokens / reads))
        # of those that it stands for the first begins when it has been read, and so do all
        behind = self._read_until - reads * (1 - 1 / self._wave.each) / 2
        begins = max(behind, self._sweep + max(1.0, reads / self._wave.each))
        return begins + there.sweeps_leaving

    def _home(self, need: int, longest: int) -> int | None:
        for number, home in enumerate(self._wave.homes):
            kept = growth_reserve(len(self._rows), home.blocks) if home.reserves else 0
            holds = longest <= home.blocks and need + kept <= self._free[number]
            if self._there[number] < home.most and holds:
                return number
        return None

    def _until_event(self) -> float:
        """Sweeps until a request ends or has read its prompt, or one may begin a block."""
        now = self._sweep
        sweeps = min(
            [
                (row.begins - now if row.begins > now else 0.0) + (row.end - row.tokens) * row.pace
                for row in self._rows
            ]
        )
        if self._read_until > now:
            sweeps = min(sweeps, math.ceil(self._read_until - now))
        return max(1.0, min(sweeps, self._wave.block_size))

    def _grow(self, sweeps: float) -> None:
        """Give rows their next blocks, in order; what is short is taken from those behind."""
        place, held, block_size = 0, len(self._rows), self._wave.block_size
        while place < len(self._rows):
            row = self._rows[place]
            row.gain = row.gained(self._sweep, sweeps)
            if row.tokens + row.gain <= row.blocks * block_size:
                place += 1
                continue
            need = self._blocks(row.tokens + row.gain) - row.blocks
            while need > self._free[row.home] and self._preempted(row.home, place):
                pass
            if need > self._free[row.home]:
                self._preempt(place)
                continue
            self._free[row.home] -= need
            row.blocks += need
            place += 1
        if len(self._rows) < held:
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
        self._leave(row)
        self._waiting.append((-row.number, row.tokens, row.end))

    def _leave(self, row: _Row) -> None:
        self._free[row.home] += row.blocks
        self._there[row.home] -= 1

    def _advance(self, sweeps: float) -> float:
        """Seconds of so many sweeps, with the rows as they are half-way."""
        kept: list[_Row] = []
        begun: list[_Row] = []
        ended: list[_Row] = []
        attended, now, then = [0.0, 0.0], self._sweep, self._sweep + sweeps
        for row in self._rows:
            if row.begins <= now:
                attended[row.home] += row.tokens + row.gain / 2
            elif row.begins < then:
                share = (then - row.begins) / sweeps
                attended[row.home] += share * (row.tokens + row.gain / 2)
            row.tokens += row.gain
            # sums may round to just below the end
            if row.end - row.tokens > _ROUNDING or row.begins > then:
                kept.append(row)
            else:
                self._leave(row)
                ended.append(row)
            if self._first_s[row.number] < 0 and (
                self._given(row) <= then or (ended and ended[-1] is row)
            ):
                begun.append(row)
        read = min(max(0.0, self._read_until - self._sweep), sweeps) / sweeps
        prompts = self._read_tokens(then) / sweeps
        self._rows, self._sweep = kept, then
        sweep_s = self._sweep_with_prompts_s(attended, read, prompts)
        if begun:
            self._note_first(begun, sweeps, sweep_s, attended, read)
        self._note_last(ended, sweeps, sweep_s)
        return sweeps * sweep_s

    def _given(self, row: _Row) -> int:
        """Sweeps after which its first token is there, though it may not have left yet."""
        return math.ceil(row.begins - self._wave.homes[row.home].sweeps_leaving)

    def _note_first(
        self,
        begun: list[_Row],
        sweeps: float,
        sweep_s: float,
        attended: list[float],
        read: float,
    ) -> None:
        """When first tokens are given in so many sweeps, the first of which read prompts."""
        now, reading_s, decode_s = self._sweep - sweeps, sweep_s, sweep_s
        if 0 < read < 1:
            device, host = (self._wave.each * tokens for tokens in attended)
            decode_s = self._sweep_s(device, host, 0.0)
            reading_s = (sweep_s - (1 - read) * decode_s) / read
        for row in begun:
            passed = min(self._given(row) - now, sweeps)
            reading = min(passed, read * sweeps)
            into_s = reading * reading_s + (passed - reading) * decode_s
            self._first_s[row.number] = self._time_s + into_s

    def _note_last(self, ended: list[_Row], sweeps: float, sweep_s: float) -> None:
        """Of requests that end within so many sweeps: as many whole ones after the first token."""
        then_s = self._time_s + sweeps * sweep_s
        for row in ended:
            whole = self._given(row) + self._wave.homes[row.home].sweeps_leaving
            early = min(self._sweep - row.begins, sweeps) - row.gain * row.pace
            ends_s = then_s + (whole - row.begins - early) * sweep_s
            self.decoding_s[row.number] = max(0.0, ends_s - self._first_s[row.number])
            self.homes[row.number] = row.home

    def _read_tokens(self, then: float) -> float:
        """Of prompts, from now on until some sweep."""
        tokens, begin = 0.0, self._sweep
        for until, per_sweep in self._reading:
            tokens += per_sweep * (min(until, then) - begin)
            begin = min(until, then)
        while self._reading and self._reading[0][0] <= then:
            self._reading.popleft()
        return tokens

    def _sweep_with_prompts_s(self, attended: list[float], read: float, prompts: float) -> float:
        """Seconds of a sweep in the mean.

        Args:
            read: share of the time in which prompts are read. prompts: tokens of them, in the mean.
        """
        each = self._wave.each
        device, host = (each * tokens for tokens in attended)
        if not read:
            return self._sweep_s(device, host, 0.0)
        # those that a request stands for come one by one where a sweep has room for more: each
        # is in another sweep, and the first tokens of prompts cost the most
        apart = min(each, 1 / read)
        tokens = each * prompts / apart
        # a sweep that reads any reads a prompt, or as much of one as it has room for
        least = min(self._prompt_tokens, each * self._wave.prompt_tokens)
        if tokens < least:
            apart, tokens = apart * tokens / least, least
        whole_s = self._sweep_s(device, host, tokens)
        if apart == 1:
            return whole_s
        without_s = self._sweep_s(device, host, 0.0)
        return without_s + apart * (whole_s - without_s)

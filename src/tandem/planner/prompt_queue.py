"""Prompts that come one by one, and are read by sweeps two of which are in flight.

Prompts that come during a sweep are read together, in the sweep after the one that has been
submitted by then; that takes the longer the more of them there are, and the longer it takes the
more come meanwhile.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

SweepWithPromptsS = Callable[[float], float]
"""Seconds of a sweep that reads so many tokens of prompts."""


@dataclass(slots=True)
class _Prompt:
    """One that waits, or is being read.

    Attributes:
        left: tokens that no sweep has taken yet.
    """

    arrival_s: float
    left: float


class PromptQueue:
    """What waits, and what is in flight.

    Args:
        room: tokens of prompts in a sweep.
        decoding_s: of a request after its first token, while there are sweeps to wait for.

    Attributes:
        ttfts_s: from a prompt's arrival to its first token, of those that have been read.
    """

    def __init__(self, sweep_s: SweepWithPromptsS, room: int, decoding_s: float) -> None:
        self._sweep_s, self._room, self._decoding_s = sweep_s, room, decoding_s
        self._waiting: deque[_Prompt] = deque()
        self._now_s = self._end_s = self._runs_until_s = 0.0
        self._reads = False
        self.ttfts_s: list[float] = []

    def arrive(self, arrival_s: float, tokens: float) -> None:
        """Go on to when a request comes."""
        self._advance(arrival_s)
        self._waiting.append(_Prompt(arrival_s, tokens))

    def finish(self) -> None:
        """Read all that wait."""
        self._advance(math.inf)

    def _advance(self, until_s: float) -> None:
        """Submit all sweeps before then."""
        while self._now_s < until_s:
            if self._waiting:
                self._read()
            elif self._now_s < self._runs_until_s and until_s < math.inf:
                self._decode(until_s)
            else:
                self._now_s = self._end_s = until_s

    def _read(self) -> None:
        start_s, left, ended = max(self._now_s, self._end_s), float(self._room), list[_Prompt]()
        while self._waiting and left > 0:
            prompt = self._waiting[0]
            taken = min(prompt.left, left)
            prompt.left -= taken
            left -= taken
            if prompt.left <= 0:
                ended.append(self._waiting.popleft())
        self._end_s = start_s + self._sweep_s(self._room - left)
        self.ttfts_s += [self._end_s - prompt.arrival_s for prompt in ended]
        if ended:
            self._runs_until_s = max(self._runs_until_s, self._end_s + self._decoding_s)
        # the next one is submitted when this one begins
        self._now_s, self._reads = start_s, True

    def _decode(self, until_s: float) -> None:
        """Sweeps without prompts: one, or as many as there are in between."""
        start_s, decode_s = max(self._now_s, self._end_s), self._sweep_s(0)
        more = min(until_s, self._runs_until_s) - start_s
        sweeps = 1 if self._reads else max(1, int(more / decode_s))
        self._end_s = start_s + sweeps * decode_s
        self._now_s, self._reads = self._end_s - decode_s, False

"""From a request's arrival to its first token, where requests come independently.

No mean tells what comes of prompts that are read together, and of longer sweeps in which more of
them come: a queue of them is lived through, with arrivals that are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tandem.planner.candidate import Candidate
from tandem.planner.prediction import Predictor
from tandem.planner.prompt_queue import PromptQueue
from tandem.planner.rates import Rates

_DRAWN = 2000
"""Requests."""
_FULL = 0.95
"""Of the tokens of prompts that sweeps can read, those that come at most: beyond it, how long they
wait is a matter of how long it lasts.
"""
_PARTS = (1 / 4, 1 / 2, 1, 2)
"""Of what a sweep reads of prompts in the mean, sizes that are timed."""


class FirstToken(NamedTuple):
    """Of a mean request, from its arrival.

    Attributes:
        is_least: it is at least that: so many come that it grows for as long as they do.
    """

    seconds: float
    is_least: bool


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Seconds of sweeps with some numbers of tokens of prompts, ascending from none."""

    tokens: Sequence[float]
    seconds: Sequence[float]

    @staticmethod
    def of(predictor: Predictor, running: Candidate, room: int) -> "_Sizes":
        chunk = predictor.pace.of(running).chunk
        sizes = sorted({1, room, *(min(room, max(1, round(part * chunk))) for part in _PARTS)})
        decode_s = predictor.decode_s(running)
        longer_s = (max(decode_s, predictor.mixed_s(running, size)) for size in sizes)
        return _Sizes((0, *sizes), (decode_s, *longer_s))

    def __call__(self, tokens: float) -> float:
        place = 1
        while self.tokens[place] < tokens:
            place += 1
        before, after = self.tokens[place - 1], self.tokens[place]
        part = (tokens - before) / (after - before)
        return self.seconds[place - 1] + part * (self.seconds[place] - self.seconds[place - 1])


def first_token(
    predictor: Predictor, running: Candidate, rates: Rates, requests_per_s: float
) -> FirstToken:
    """Of a mean request: its own sweeps, those that are under way when it comes, if any
    are, and prompts that came before.

    Args:
        running: with the requests that run at that rate of arrival. rates: of it.
    """
    lengths, room = predictor.lengths, predictor.pace.room(running)
    sweep_s, draw = _Sizes.of(predictor, running, room), Random(0)
    prompts = [shape.prompt_tokens for shape in lengths.shapes] or [lengths.prompt_tokens]
    # what sweeps of `room` tokens can read
    most = _FULL * room / sweep_s(room) / lengths.prompt_tokens
    per_s = min(requests_per_s, most)
    queue = PromptQueue(sweep_s, room, lengths.later_tokens * rates.worst_tpot_s)
    now_s = 0.0
    for _ in range(_DRAWN):
        now_s += draw.expovariate(per_s)
        queue.arrive(now_s, draw.choice(prompts))
    queue.finish()
    return FirstToken(sum(queue.ttfts_s) / len(queue.ttfts_s), requests_per_s > most)

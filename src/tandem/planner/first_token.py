"""From a request's arrival to its first token, where requests come independently.

No mean tells what comes of prompts that are read together, and of longer sweeps in which more of
them come: a queue of them is lived through, with arrivals that are drawn.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.prediction import Predictor
from tandem.planner.prompt_queue import PromptQueue
from tandem.planner.queue_places import Home
from tandem.planner.rates import Rates

_DRAWN = 2000
"""Requests."""
_LONGER = 4
"""Times as many are drawn where some wait for a place: it may be long before all are taken, and
nobody knows from fewer whether they wait ever longer.
"""
_WAIT_FOR_PLACES = 0.01
"""Of the requests; fewer do not matter."""
_GROWS = 1.5
"""By so much longer the last quarter of the requests waits than the second, if each waits longer.
"""
_FULL = 0.95
"""Of the tokens of prompts that sweeps can read, those that come at most: beyond it, how long they
wait is a matter of how long it lasts.
"""
_PARTS = (1 / 4, 1 / 2, 1, 2)
"""Of what a sweep reads of prompts in the mean, sizes that are timed."""


class FirstToken(NamedTuple):
    """Of a mean request, from its arrival.

    Attributes:
        p90_s: nine of ten have it no later.
        is_least: it is at least that: so many come, for what sweeps can read or for the places that
            there are, that it grows for as long as they do.
    """

    seconds: float
    p90_s: float
    is_least: bool


@dataclass(slots=True)
class _Sizes:
    """Seconds of sweeps with some numbers of tokens of prompts, ascending from none; timed when
    the first is asked for.

    Attributes:
        hosted: of the prompts, those of requests on the host.
    """

    predictor: Predictor
    running: Candidate
    room: int
    hosted: float
    tokens: Sequence[float] = ()
    seconds: Sequence[float] = ()

    def __call__(self, tokens: float) -> float:
        if not self.tokens:
            self._time()
        place = 1
        while self.tokens[place] < tokens:
            place += 1
        before, after = self.tokens[place - 1], self.tokens[place]
        part = (tokens - before) / (after - before)
        return self.seconds[place - 1] + part * (self.seconds[place] - self.seconds[place - 1])

    def _time(self) -> None:
        predictor, running, room = self.predictor, self.running, self.room
        chunk = predictor.pace.of(running).chunk
        sizes = sorted({1, room, *(min(room, max(1, round(part * chunk))) for part in _PARTS)})
        decode_s = predictor.decode_s(running)
        timed_s = (predictor.mixed_s(running, size, self.hosted) for size in sizes)
        self.tokens = (0, *sizes)
        self.seconds = (decode_s, *(max(decode_s, each_s) for each_s in timed_s))


def first_token(
    predictor: Predictor,
    footprint: Footprint,
    plan: Candidate,
    running: Candidate,
    rates: Rates,
    requests_per_s: float,
) -> FirstToken:
    """Of a mean request: a place, room for its KV, its own sweeps, those that are under way when it
    comes, if any are, and prompts that came before.

    Args:
        running: the plan with the requests that run at that rate of arrival. rates: of it.
    """
    lengths, room = predictor.lengths, predictor.pace.room(running)
    homes, draw = _homes(predictor, footprint, plan, running, rates), Random(0)
    shapes = [(float(each.prompt_tokens), each.generated_tokens - 1.0) for each in lengths.shapes]
    shapes = shapes or [(lengths.prompt_tokens, lengths.later_tokens)]
    # what sweeps of `room` tokens can read
    most = _FULL * room / predictor.mixed_s(running, room) / lengths.prompt_tokens
    per_s = min(requests_per_s, most)
    queue = PromptQueue(homes, room, footprint.page.block_size)
    now_s, drawn = 0.0, 0
    while drawn < (_LONGER * _DRAWN if queue.waited > _WAIT_FOR_PLACES * drawn else _DRAWN):
        now_s += draw.expovariate(per_s)
        queue.arrive(now_s, *draw.choice(shapes))
        drawn += 1
    queue.finish()
    grows = _grows(queue.ttfts_s)
    # those that come later tell whether it grows; jobs hardly have as many
    ttfts_s = sorted(queue.ttfts_s if grows else queue.ttfts_s[:_DRAWN])
    mean_s, p90_s = sum(ttfts_s) / len(ttfts_s), ttfts_s[round(0.9 * (len(ttfts_s) - 1))]
    return FirstToken(mean_s, p90_s, requests_per_s > most or grows)


def _grows(ttfts_s: Sequence[float]) -> bool:
    """Whether those that come later wait longer."""
    quarter = len(ttfts_s) // 4
    second, last = (sum(ttfts_s[n * quarter :][:quarter]) for n in (1, 3))
    return last > _GROWS * second


def _homes(
    predictor: Predictor, footprint: Footprint, plan: Candidate, running: Candidate, rates: Rates
) -> tuple[Home, ...]:
    """Of the plan, the accelerator's places first."""
    room, places = predictor.pace.room(running), predictor.places(plan)
    here, there = footprint.device_blocks(plan), footprint.host_blocks(plan)
    reading = _Sizes(predictor, running, room, 0.0)
    if plan.device_share:
        return (Home(places, here + there, reading, rates.worst_tpot_s),)
    hosted = _Sizes(predictor, running, room, 1.0)
    if not plan.device_rows:
        return (Home(places, there, hosted, rates.worst_tpot_s),)
    beside = places - plan.rows
    device = Home(plan.device_rows + beside, here, reading, rates.tpot_s)
    if not plan.host_rows:
        return (device,)
    return device, Home(plan.host_rows, there, hosted, rates.worst_tpot_s, plan.reads_here)

"""What requests see that come over time, when not all rows of a plan are in use."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.planner.arrival_queue import ArrivalQueue, Lived
from tandem.planner.candidate import Candidate
from tandem.planner.footprint import Footprint
from tandem.planner.prediction import Predictor
from tandem.planner.queue_places import Home
from tandem.planner.rates import Rates
from tandem.planner.row_prices import RowPrices

_MOST = 8000
"""Requests that are lived through: of more, the first."""
_GROWS, _TELLING = 1.5, 400
"""By so much longer the last quarter of the requests waits than the second, if each waits longer;
and requests, of fewer of which that may be by chance.
"""
_FULL = 0.95
"""Of the requests that can be read or have places, those that come at most: beyond it, how long
they wait is a matter of how long it lasts.
"""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A plan whose requests come when they do.

    Attributes:
        requests_per_s: that come. tokens_per_s: output tokens that are given out.
        rows: requests that run at once, or wait.
        keeps_up: whether requests are served as fast as they come, however many there are; else
            they queue.
        on_host: share of the requests that find the accelerator's places taken, and go to the
            host's.
        rates: that they see.
        ttft_s: from a mean request's arrival to its first token. ttft_p90_s: nine of ten wait no
            longer for theirs.
        ttft_is_least: more requests would wait longer, as nearly as many come as can be read, or
            have places, or more.
        job_s: until the last of all requests has ended; None if they are too many to be lived
            through.
    """

    requests_per_s: float
    tokens_per_s: float
    rows: int
    keeps_up: bool
    rates: Rates
    ttft_s: float
    ttft_p90_s: float
    ttft_is_least: bool = False
    on_host: float = 0.0
    job_s: float | None = None


def at_arrivals(
    predictor: Predictor, footprint: Footprint, plan: Candidate, rates: Rates
) -> Arrivals | None:
    """What they see, lived through from the first arrival on; None if all are there at once.

    Args:
        rates: of the plan with all rows in use.
    """
    lengths = predictor.lengths
    if not lengths.duration_s:
        return None
    per_s = (lengths.requests - 1) / lengths.duration_s
    wanted = per_s * lengths.generated_tokens
    prices = RowPrices(predictor, plan, predictor.places(plan))
    queue = ArrivalQueue(_homes(predictor, footprint, plan), prices, footprint.page.block_size)
    lived = queue.live_through(lengths.shapes[:_MOST])
    ttfts_s = [request.first_s - request.arrival_s for request in lived.requests]
    return Arrivals(
        requests_per_s=per_s,
        tokens_per_s=min(wanted, rates.tokens_per_s),
        rows=max(1, round(_running(lived))),
        keeps_up=wanted <= rates.tokens_per_s,
        rates=_rates(lived, rates, plan),
        ttft_s=_mean(ttfts_s),
        ttft_p90_s=sorted(ttfts_s)[round(0.9 * (len(ttfts_s) - 1))],
        ttft_is_least=wanted > _FULL * rates.tokens_per_s or _grows(ttfts_s),
        on_host=_mean([float(request.hosted) for request in lived.requests]),
        job_s=lived.end_s if lengths.requests <= _MOST else None,
    )


def _homes(predictor: Predictor, footprint: Footprint, plan: Candidate) -> tuple[Home, ...]:
    """Of the plan, the accelerator's places first, though it may be there only for prompts."""
    places, beside = predictor.places(plan), predictor.places(plan) - plan.rows
    here, there = footprint.device_blocks(plan), footprint.host_blocks(plan)
    if plan.device_share:
        return (Home(places, here + there, hosted=True),)
    if not plan.host_rows:
        return (Home(places, here),)
    on_host = plan.host_rows + (0 if plan.device_rows else beside)
    host = Home(on_host, there, hosted=True, passes=plan.reads_here)
    return Home(places - on_host, here), host


def _rates(lived: Lived, rates: Rates, plan: Candidate) -> Rates:
    """As the requests see them, each for itself."""
    fast, slow = list[float](), list[float]()
    for request in lived.requests:
        if request.later:
            in_cohort = plan.has_cohorts and request.hosted
            lane = slow if in_cohort else fast
            lane.append((request.end_s - request.first_s) / request.later)
    slow_s = _mean(slow) if slow else None
    seen_s = _mean(fast) if fast else slow_s
    return replace(
        rates,
        tpot_s=rates.tpot_s if seen_s is None else seen_s,
        slow_tpot_s=slow_s,
        ttft_s=_mean([request.first_s - request.turn_s for request in lived.requests]),
        prefill_share=lived.reading_share,
    )


def _running(lived: Lived) -> float:
    """Under way, in the mean, from their arrival on."""
    under_way = sum(request.end_s - request.arrival_s for request in lived.requests)
    return under_way / lived.end_s


def _grows(ttfts_s: Sequence[float]) -> bool:
    """Whether those that come later wait longer."""
    if len(ttfts_s) < _TELLING:
        return False
    quarter = len(ttfts_s) // 4
    second, last = (sum(ttfts_s[n * quarter :][:quarter]) for n in (1, 3))
    return last > _GROWS * second


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

"""What requests see that come over time, when not all rows of a plan are in use."""

from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.first_token import first_token
from tandem.planner.footprint import Footprint
from tandem.planner.overflow import overflow_share
from tandem.planner.prediction import Predictor
from tandem.planner.rates import Rates

_ROUNDS = 6
"""Of finding out how many run in each tier, which is mostly the same after two or three."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A plan under its workload's mean rate of arrival.

    Attributes:
        requests_per_s: that come. tokens_per_s: output tokens that are given out.
        rows: requests that run at once.
        keeps_up: whether requests are served as fast as they come; else they queue, and all rows
            are in use.
        on_host: share of the requests that find the accelerator's places taken, and go to the
            host's.
        rates: with that many rows.
        ttft_s: from a mean request's arrival to its first token, if they come independently; None
            if they queue, ever longer. ttft_p90_s: nine of ten wait no longer for theirs.
        ttft_is_least: it is at least that, as nearly as many come as can be read, or have places.
    """

    requests_per_s: float
    tokens_per_s: float
    rows: int
    keeps_up: bool
    rates: Rates
    ttft_s: float | None
    ttft_p90_s: float | None = None
    ttft_is_least: bool = False
    on_host: float = 0.0


def at_arrivals(
    predictor: Predictor, footprint: Footprint, plan: Candidate, rates: Rates
) -> Arrivals | None:
    """The rows that serve requests as fast as they come; None if all are there at once.

    Args:
        rates: of the plan with all rows in use.
    """
    lengths = predictor.lengths
    if not lengths.duration_s:
        return None
    per_s = (lengths.requests - 1) / lengths.duration_s
    wanted = per_s * lengths.generated_tokens
    if rates.tokens_per_s < wanted:
        return Arrivals(per_s, rates.tokens_per_s, plan.rows, False, rates, None)
    running, found = _fewest(predictor, plan, rates, wanted)
    on_host = 0.0
    if plan.device_rows and plan.host_rows:
        running, found, on_host = _overflowing(predictor, plan, (running, found), rates, per_s)
    elif plan.host_rows and not plan.device_share:
        on_host = 1.0
    first = first_token(predictor, footprint, plan, running, found, per_s)
    return Arrivals(
        requests_per_s=per_s,
        tokens_per_s=wanted,
        rows=running.rows,
        keeps_up=True,
        rates=found,
        ttft_s=first.seconds,
        ttft_p90_s=first.p90_s,
        ttft_is_least=first.is_least,
        on_host=on_host,
    )


def _fewest(
    predictor: Predictor, plan: Candidate, rates: Rates, wanted: float
) -> tuple[Candidate, Rates]:
    """The fewest rows of a plan that give out so many tokens per second, those on the accelerator
    first.
    """
    low, high, found = 1, plan.rows, rates
    # first without a cohort: a few more rows in one may serve fewer tokens than none there
    middle = plan.device_rows if plan.has_cohorts and plan.device_rows else (low + high) // 2
    while low < high:
        tried = predictor.rates(_with_rows(plan, middle))
        if tried.tokens_per_s >= wanted:
            high, found = middle, tried
        else:
            low = middle + 1
        middle = (low + high) // 2
    return _with_rows(plan, high), found


def _with_rows(plan: Candidate, rows: int) -> Candidate:
    """Fewer rows of a plan, on the accelerator first."""
    device = min(plan.device_rows, rows)
    return _in_tiers(plan, device, rows - device)


def _in_tiers(plan: Candidate, device: int, hosted: int) -> Candidate:
    """No cohorts where none lie on the host."""
    if plan.has_cohorts and not hosted:
        return plan._replace(strategy="gpu-only", device_rows=device, host_rows=0, passes=0)
    return plan._replace(device_rows=device, host_rows=hosted)


def _overflowing(
    predictor: Predictor,
    plan: Candidate,
    fewest: tuple[Candidate, Rates],
    rates: Rates,
    per_s: float,
) -> tuple[Candidate, Rates, float]:
    """Requests with their KV in each tier, where those that come are given what is free on the
    accelerator, and else stay on the host to their ends, though a place there were free by then;
    and the share of them that do.

    Args:
        fewest: rows that keep up if none went to the host for which there will be room. rates: of
            all rows.
    """
    (running, found), on_host = fewest, 0.0
    for _ in range(_ROUNDS):
        here_s = predictor.main_request_s(found)
        slower = found if found.slow_tpot_s is not None else rates
        there_s = predictor.request_s(slower)
        on_host = overflow_share(plan.device_rows, per_s * here_s)
        # where its places are taken as well, who comes waits for whichever is free first
        on_host = min(on_host, plan.host_rows / (per_s * there_s))
        hosted = round(per_s * on_host * there_s)
        device = max(1, min(plan.device_rows, round(per_s * (1 - on_host) * here_s)))
        if not hosted:
            return *fewest, 0.0
        tried = _in_tiers(plan, device, hosted)
        if tried == running:
            break
        running, found = tried, predictor.rates(tried)
    return running, found, on_host

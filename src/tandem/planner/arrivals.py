"""What requests see that come over time, when not all rows of a plan are in use."""

from dataclasses import dataclass

from tandem.planner.candidate import Candidate
from tandem.planner.first_token import first_token
from tandem.planner.prediction import Predictor
from tandem.planner.rates import Rates


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A plan under its workload's mean rate of arrival.

    Attributes:
        requests_per_s: that come. tokens_per_s: output tokens that are given out.
        rows: requests that run at once.
        keeps_up: whether requests are served as fast as they come; else they queue, and all rows
            are in use.
        rates: with that many rows.
        ttft_s: from a mean request's arrival to its first token, if they come independently; None
            if they queue, ever longer.
        ttft_is_least: it is at least that, as nearly as many come as can be read.
    """

    requests_per_s: float
    tokens_per_s: float
    rows: int
    keeps_up: bool
    rates: Rates
    ttft_s: float | None
    ttft_is_least: bool = False


def at_arrivals(predictor: Predictor, plan: Candidate, rates: Rates) -> Arrivals | None:
    """The fewest rows that serve requests as fast as they come; None if all are there at once.

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
    first = first_token(predictor, _with_rows(plan, high), found, per_s)
    return Arrivals(per_s, wanted, high, True, found, first.seconds, first.is_least)


def _with_rows(plan: Candidate, rows: int) -> Candidate:
    """Fewer rows of a plan, on the accelerator first; no cohorts where none lie on the host."""
    device = min(plan.device_rows, rows)
    if plan.has_cohorts and rows == device:
        return plan._replace(strategy="gpu-only", device_rows=device, host_rows=0, passes=0)
    return plan._replace(device_rows=device, host_rows=rows - device)

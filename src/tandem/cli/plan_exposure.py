"""What becomes of a plan where rates are not as assumed, as a line and as JSON."""

from collections.abc import Iterator
from typing import Any

from tandem.planner.exposure import Exposure, MovedPlan
from tandem.planner.wrong_rates import ERROR, named
from tandem.spec.units import format_figure

_FLAT = 0.005
"""Less loss than predictions are fine."""


def exposure_text(found: Exposure, compared_by: str = "") -> Iterator[str]:
    """A line, one of what costs most, if a group does, and one if the plan would break its bound.

    Args:
        compared_by: what its rates are, where that is not the throughput as it is shown.
    """
    worst = found.worst
    start = f"If rates are {ERROR:.0%} off, this plan "
    if found.loss(worst) < _FLAT:
        yield f"{start}is as fast"
    else:
        rate = format_figure(worst.tokens_per_s)
        loss, basis = f"{-found.loss(worst):+.0%}", ""
        if compared_by:  # `rate` may lie above what is shown: so what it is lower than is said
            rate = f"{rate} instead of {format_figure(found.planned_tokens_per_s)}"
            basis = f", {compared_by}"
        yield f"{start}makes {rate} tokens/s at worst ({loss}{basis})"
        yield from _most(found)
    if found.late:
        late = ", ".join(_late(found, case) for case in found.late)
        yield f"  and is later than the bound on time per token allows with {late}"


def exposure_json(found: Exposure) -> dict[str, Any]:
    """All cases; `errors` by group of rates."""
    return {
        "planned_tokens_per_s": found.planned_tokens_per_s,
        "decisive": next(iter(found.decisive.errors)),
        "worst": _case(found, found.worst),
        "cases": [_case(found, case) for case in found.cases],
    }


def _case(found: Exposure, case: MovedPlan) -> dict[str, Any]:
    return {
        "errors": dict(case.errors),
        "tokens_per_s": case.tokens_per_s,
        "loss": found.loss(case),
        "in_time": case.in_time,
    }


def _most(found: Exposure) -> Iterator[str]:
    """The single group that costs most, if one does, and in which direction: faster may, too."""
    case = found.decisive
    loss = found.loss(case)
    if loss >= _FLAT:
        yield f"  {named(case.errors)} alone would cost most ({-loss:+.0%})"


def _late(found: Exposure, case: MovedPlan) -> str:
    return "all of them at once" if case is found.worst else named(case.errors)

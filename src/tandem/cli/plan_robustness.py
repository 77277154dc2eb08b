"""A plan under wrong numbers, as a table."""

from collections.abc import Callable, Iterator

from tandem.planner.robustness import WITHIN, Best, Robustness, WrongRates
from tandem.planner.wrong_rates import named
from tandem.spec.units import format_figure

_LABEL = 33
_FLAT = 0.005
"""Less regret than predictions are fine."""


def robustness_text(found: Robustness[Best], describe: Callable[[Best], str]) -> Iterator[str]:
    """The lines to print.

    Args:
        describe: a plan in a line.
    """
    rivals = len(found.cases[0].rivals_tokens_per_s)
    heads = ["this plan", *(f"rejected {i + 1}" for i in range(rivals)), "planned anew", "regret"]
    yield "If one number is wrong, or two, tokens/s (rejected plans in the order above)"
    yield f"  {'':<{_LABEL}}" + "".join(f"{head:>13}" for head in heads)
    for case in found.cases:
        best = "-" if case.best is None else format_figure(case.best.tokens_per_s)
        plan = format_figure(case.plan_tokens_per_s) + ("" if case.plan_in_time else " late")
        cells = [plan, *(format_figure(rate) for rate in case.rivals_tokens_per_s), best]
        regret = f"{case.regret:.1%}" if case.plan_in_time or case.best is None else "too slow"
        row = "".join(f"{cell:>13}" for cell in [*cells, regret])
        yield f"  {named(case.errors):<{_LABEL}}{row}"
    yield from _verdict(found, describe)
    yield f"Its own speed depends most on: {found.decisive}"


def _verdict(found: Robustness[Best], describe: Callable[[Best], str]) -> Iterator[str]:
    """Whether the plan stands all cases; if not, which it does not."""
    if found.fragile:
        first, *others = sorted(found.fragile, key=lambda case: (case.plan_in_time, -case.regret))
        more = f", and in {len(others)} more" if others else ""
        yield (
            f"Fragile: late, or over {WITHIN:.0%} short of the best plan, at {_short(first)}{more}"
        )
    else:
        yield f"Robust: in every case within {WITHIN:.0%} of the best plan"
    worst = found.worst
    if worst.regret >= _FLAT and worst.best is not None:
        better = describe(worst.best)
        yield f"Worst regret: {worst.regret:.1%} at {named(worst.errors)}, for {better}"


def _short(case: WrongRates[Best]) -> str:
    return f"{named(case.errors)} ({f'{case.regret:.1%}' if case.plan_in_time else 'late'})"

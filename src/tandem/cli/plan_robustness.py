"""A plan under wrong numbers, as a table."""

from collections.abc import Iterator

from tandem.planner.robustness import WITHIN, Best, Robustness, WrongNumber
from tandem.spec.units import format_figure

_FLAT = 0.005
"""Less regret than predictions are fine."""


def robustness_text(found: Robustness[Best], num_layers: int) -> Iterator[str]:
    """The lines to print.

    Args:
        num_layers: of the model.
    """
    rivals = len(found.cases[0].rivals_tokens_per_s)
    heads = ["this plan", *(f"rejected {i + 1}" for i in range(rivals)), "planned anew", "regret"]
    yield "If a number is wrong, tokens/s (rejected plans in the order above)"
    yield f"  {'':<20}" + "".join(f"{head:>13}" for head in heads)
    for case in found.cases:
        best = "-" if case.best is None else format_figure(case.best.tokens_per_s)
        plan = format_figure(case.plan_tokens_per_s) + ("" if case.plan_in_time else " late")
        cells = [plan, *(format_figure(rate) for rate in case.rivals_tokens_per_s), best]
        regret = f"{case.regret:.1%}" if case.plan_in_time or case.best is None else "too slow"
        row = "".join(f"{cell:>13}" for cell in [*cells, regret])
        yield f"  {case.number:<15}{case.error:+5.0%}{row}"
    yield from _verdict(found, num_layers)
    yield f"Its own speed depends most on: {found.decisive}"


def _verdict(found: Robustness[Best], num_layers: int) -> Iterator[str]:
    """Whether the plan stands all cases; if not, which it does not."""
    if found.fragile:
        cases = ", ".join(_short(case) for case in found.fragile)
        yield f"Fragile: late, or over {WITHIN:.0%} short of the best plan, at {cases}"
    else:
        yield f"Robust: in every case within {WITHIN:.0%} of the best plan"
    worst = found.worst
    if worst.regret >= _FLAT and worst.best is not None:
        better = worst.best.candidate.describe(num_layers)
        yield f"Worst regret: {worst.regret:.1%} at {_name(worst)}, for {better}"


def _short(case: WrongNumber[Best]) -> str:
    return f"{_name(case)} ({f'{case.regret:.1%}' if case.plan_in_time else 'late'})"


def _name(case: WrongNumber[Best]) -> str:
    return f"{case.number} {case.error:+.0%}"

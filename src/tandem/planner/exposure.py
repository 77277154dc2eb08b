"""What becomes of a plan as it is where rates turn out otherwise: in every answer, at little cost.

Nothing is planned anew, as `robustness` does: the plan's own speed is predicted on that machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tandem.planner.question import Question
from tandem.planner.wrong_rates import ERROR, Number, numbers, with_errors

Speed = Callable[[Question], tuple[float, bool]]
"""Of the plan on a machine: tokens per second, and whether it keeps the bound on time per token."""


@dataclass(frozen=True, slots=True)
class MovedPlan:
    """The plan on a machine some of whose rates are off.

    Attributes:
        errors: relative to what was assumed, by group of rates.
        in_time: whether it still keeps the bound on time per token.
    """

    errors: Mapping[Number, float]
    tokens_per_s: float
    in_time: bool


@dataclass(frozen=True, slots=True)
class Exposure:
    """How much a plan's speed hangs on its numbers.

    Attributes:
        planned_tokens_per_s: with all of them right.
        cases: of each group of rates, too low and too high.
        worst: all groups at once: too low, or each in the direction that costs the plan more alone,
            whichever is slower.
    """

    planned_tokens_per_s: float
    cases: tuple[MovedPlan, ...]
    worst: MovedPlan

    @property
    def decisive(self) -> MovedPlan:
        """The single group that the plan loses most by."""
        return min(self.cases, key=lambda case: case.tokens_per_s)

    @property
    def late(self) -> tuple[MovedPlan, ...]:
        """The cases in which the plan no longer keeps its bound."""
        return tuple(case for case in (*self.cases, self.worst) if not case.in_time)

    def loss(self, case: MovedPlan) -> float:
        """Of the planned tokens per second, the share that is lost."""
        return 1 - case.tokens_per_s / self.planned_tokens_per_s


def exposure(question: Question, planned_tokens_per_s: float, speed: Speed) -> Exposure:
    """Move each group of rates by 15%, and then all of them.

    Args:
        speed: predicts the plan on another machine.
    """

    def moved(errors: Mapping[Number, float]) -> MovedPlan:
        return MovedPlan(errors, *speed(with_errors(question, errors)))

    cases: dict[Number, list[MovedPlan]] = {
        number: [moved({number: error}) for error in (-ERROR, ERROR)]
        for number in numbers(question)
    }
    all_low: dict[Number, float] = {}
    against: dict[Number, float] = {}
    for number, both in cases.items():
        all_low[number] = -ERROR
        against |= min(both, key=lambda case: case.tokens_per_s).errors
    together = [moved(all_low)] if against == all_low else [moved(all_low), moved(against)]
    worst = min(together, key=lambda case: case.tokens_per_s)
    every = tuple(case for both in cases.values() for case in both)
    return Exposure(planned_tokens_per_s, every, worst)

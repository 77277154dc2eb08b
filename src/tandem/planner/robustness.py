"""How a plan and its closest rivals do if a number that they were chosen by is wrong.

The plan stays as it is; the machine turns out slower or faster in one thing. What it loses against
planning for that machine is its regret.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tandem.planner.in_step import InStep
from tandem.planner.option import Option
from tandem.planner.policies import Policy
from tandem.planner.search.search import Search
from tandem.planner.wrong_rates import Number, wrong_machines

WITHIN = 0.03
"""Of the best plan's tokens per second, what a plan may lack and still be a good one."""


class Described(Protocol):
    """One way to run."""

    def describe(self, num_layers: int) -> str:
        """One line for people."""
        ...


class Ranked(Protocol):
    """A way to run with its prediction, online or of a batch job."""

    @property
    def candidate(self) -> Described:
        """The way."""
        ...

    @property
    def tokens_per_s(self) -> float:
        """What it is ranked by."""
        ...


Best = TypeVar("Best", bound=Ranked)


@dataclass(frozen=True, slots=True)
class WrongRates(Generic[Best]):
    """One group of rates, or two, off by a share of them.

    Attributes:
        errors: relative to what was assumed, by group.
        plan_tokens_per_s: of the plan as it was chosen.
        plan_in_time: whether it still keeps the bound on time per token.
        rivals_tokens_per_s: of each alternative.
        best: for that machine; None if nothing keeps the bound there.
    """

    errors: Mapping[Number, float]
    plan_tokens_per_s: float
    plan_in_time: bool
    rivals_tokens_per_s: tuple[float, ...]
    best: Best | None

    @property
    def regret(self) -> float:
        """Of the best plan's tokens per second, what this plan lacks."""
        if self.best is None:
            return 0.0
        return max(0.0, 1 - self.plan_tokens_per_s / self.best.tokens_per_s)

    @property
    def breaks_plan(self) -> bool:
        """Whether the plan is not within 3% of the best one then, or comes late."""
        return self.regret > WITHIN or not self.plan_in_time


@dataclass(frozen=True, slots=True)
class Robustness(Generic[Best]):
    """A plan under wrong rates.

    Attributes:
        planned_tokens_per_s: with all numbers right.
        cases: of each group, too low and too high, and of every two groups together.
    """

    planned_tokens_per_s: float
    cases: tuple[WrongRates[Best], ...]

    @property
    def worst(self) -> WrongRates[Best]:
        """The case with the most regret."""
        return max(self.cases, key=lambda case: case.regret)

    @property
    def fragile(self) -> tuple[WrongRates[Best], ...]:
        """The cases that the plan does not stand; none: it is robust."""
        return tuple(case for case in self.cases if case.breaks_plan)

    @property
    def decisive(self) -> Number:
        """The group on which the plan's own speed depends most."""
        single = [case for case in self.cases if len(case.errors) == 1]
        most = max(
            single, key=lambda case: abs(case.plan_tokens_per_s / self.planned_tokens_per_s - 1)
        )
        return next(iter(most.errors))


def robustness(
    search: Search, policy: Policy, chosen: Option, rivals: Sequence[Option]
) -> Robustness[Option]:
    """Predicts the plan and its rivals anew for each wrong machine, and plans for it."""
    known = [chosen.candidate, *(rival.candidate for rival in rivals)]
    cases: list[WrongRates[Option]] = []
    for errors, question in wrong_machines(search.question):
        other = Search(question, like=search, known=known)
        in_step, predict = InStep(other), other.predictor.predict
        plan, *others = (in_step.closely(Option(each, predict(each))) for each in known)
        cases.append(
            WrongRates(
                errors,
                plan.tokens_per_s,
                question.allows(plan.prediction.rates.worst_tpot_s),
                tuple(rival.tokens_per_s for rival in others),
                in_step.best(policy, known),
            )
        )
    return Robustness(chosen.tokens_per_s, tuple(cases))

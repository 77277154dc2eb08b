"""How a batch job's plan and its rivals do if a number that they were chosen by is wrong."""

from collections.abc import Iterator, Sequence

from tandem.planner.exposure import Exposure, exposure
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.planner.robustness import Robustness, WrongRates
from tandem.planner.wrong_rates import wrong_machines


def block_robustness(
    search: OfflineSearch, policy: OfflinePolicy, chosen: BlockOption, rivals: Sequence[BlockOption]
) -> Robustness[BlockOption]:
    """Predicts the plan and its rivals anew for each wrong machine, and plans for it."""
    cases = _cases(search, policy, [chosen, *rivals])
    return Robustness(chosen.tokens_per_s, tuple(cases))


def block_exposure(search: OfflineSearch, chosen: BlockOption) -> Exposure:
    """What becomes of a batch job's plan where rates turn out otherwise."""

    def speed(other: Question) -> tuple[float, bool]:
        return OfflineSearch(other, like=search).option(chosen.candidate).tokens_per_s, True

    return exposure(search.question, chosen.tokens_per_s, speed)


def _cases(
    search: OfflineSearch, policy: OfflinePolicy, options: Sequence[BlockOption]
) -> Iterator[WrongRates[BlockOption]]:
    known = [option.candidate for option in options]
    for errors, question in wrong_machines(search.question):
        other = OfflineSearch(question, like=search)
        plan, *rivals = (other.option(candidate).tokens_per_s for candidate in known)
        yield WrongRates(errors, plan, True, tuple(rivals), other.best(policy, known))

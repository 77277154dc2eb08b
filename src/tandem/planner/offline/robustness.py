"""How a batch job's plan and its rivals do if a number that they were chosen by is wrong."""

from collections.abc import Iterator, Sequence

from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.search import BlockOption, OfflineSearch
from tandem.planner.robustness import Robustness, WrongNumber, wrong_machines


def block_robustness(
    search: OfflineSearch, policy: OfflinePolicy, chosen: BlockOption, rivals: Sequence[BlockOption]
) -> Robustness[BlockOption]:
    """Predicts the plan and its rivals anew for each wrong machine, and plans for it."""
    cases = _cases(search, policy, [chosen, *rivals])
    return Robustness(chosen.tokens_per_s, tuple(cases))


def _cases(
    search: OfflineSearch, policy: OfflinePolicy, options: Sequence[BlockOption]
) -> Iterator[WrongNumber[BlockOption]]:
    known = [option.candidate for option in options]
    for number, error, question in wrong_machines(search.question):
        other = OfflineSearch(question, like=search)
        plan, *rivals = (other.option(candidate).tokens_per_s for candidate in known)
        yield WrongNumber(number, error, plan, True, tuple(rivals), other.best(policy, known))

"""What more of a resource would bring to a batch job, by planning anew for the larger machine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tandem.planner.aside import Aside
from tandem.planner.offline.option import BlockOption
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.planner.sensitivity import larger_machines


@dataclass(frozen=True, slots=True)
class BlockSensitivity:
    """A larger machine and its best option.

    Attributes:
        gain: its tokens per second over those of this machine's best, less 1.
    """

    change: str
    option: BlockOption
    gain: float


def begin_block_sensitivities(
    search: OfflineSearch, policy: OfflinePolicy, best: BlockOption, aside: Aside
) -> list[Callable[[], BlockSensitivity | None]]:
    """One more of each resource that such plans use; the best candidate is tried on each.

    Returns: what waits for each; None: nothing keeps to the policy there.
    """
    return [
        aside.begin(partial(_larger, search, policy, best, change, larger))
        for change, larger in larger_machines(search.question)
    ]


def _larger(
    search: OfflineSearch, policy: OfflinePolicy, best: BlockOption, change: str, larger: Question
) -> BlockSensitivity | None:
    option = OfflineSearch(larger, like=search).best(policy, known=[best.candidate])
    if option is None:
        return None
    return BlockSensitivity(change, option, option.tokens_per_s / best.tokens_per_s - 1)

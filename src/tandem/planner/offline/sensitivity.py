"""What more of a resource would bring to a batch job, by planning anew for the larger machine."""

from collections.abc import Iterator
from dataclasses import dataclass

from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.search import BlockOption, OfflineSearch
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


def block_sensitivities(
    search: OfflineSearch, policy: OfflinePolicy, best: BlockOption
) -> Iterator[BlockSensitivity]:
    """One more of each resource that such plans use; the best candidate is tried on each."""
    for change, larger in larger_machines(search.question):
        option = OfflineSearch(larger, like=search).best(policy, known=[best.candidate])
        if option is not None:
            yield BlockSensitivity(change, option, option.tokens_per_s / best.tokens_per_s - 1)

"""The contract of a strategy."""

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


class Strategy(Protocol):
    """Proposes the next step; keeps nothing between calls.

    Attributes:
        name: as on the command line.
        uses_host: whether requests' KV may lie on the host tier and be attended there.
    """

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    @property
    def uses_host(self) -> bool:
        """Whether KV may lie on the host tier and be attended there."""
        ...

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Decide the next step; an empty proposal if there is nothing to do now.

        Args:
            prices: by which steps can be compared; None: nothing is known of this machine's times.
        """
        ...


@runtime_checkable
class Repeats(Protocol):
    """A strategy that chooses by prices, and says whether a choice would be the same again for less
    than it takes to propose it.
    """

    def repeats(
        self, proposal: StepProposal, view: SchedulerView, prices: "StepPrices | None"
    ) -> bool:
        """Whether it would propose the same again, some steps later, as it would have in each step
        until then; False if that is not certain.

        Args:
            proposal: rows that decode, and nothing else, no cohort being under way.
            view: as it will be once these have got some tokens more, and all others none, while
                nobody has come, ended or lacked memory. What is free is not taken from it.
        """
        ...

"""The contract of a strategy."""

from typing import TYPE_CHECKING, Protocol

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

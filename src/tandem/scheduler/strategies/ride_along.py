"""Rows with KV on the host ride in the same sweep: their attention runs beside the device's."""

from typing import TYPE_CHECKING

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


class RideAlong:
    """Device first; what does not fit there lies on the host and is attended there, layer by layer
    within the sweep. The sweep waits where the host's attention takes longer than the device's.
    """

    name = "ride-along"
    uses_host = True

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Fill the main lane with all runnable rows, whichever tier their KV is in."""
        del prices  # memory and rank decide
        return StepFiller(view, uses_host=True).fill(view.runnable)

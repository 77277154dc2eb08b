"""Everything on the device: continuous batching as other engines do it, and the baseline."""

from typing import TYPE_CHECKING

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


class GpuOnly:
    """KV on the device only; the host tier serves as swap space for preempted rows."""

    name = "gpu-only"
    uses_host = False

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Fill the main lane with all runnable rows."""
        del prices  # memory and rank decide
        return StepFiller(view, uses_host=False).fill(view.runnable)

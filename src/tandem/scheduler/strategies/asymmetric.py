"""Cohorts with passes of their own: between APEX's overlap and NEO's pipeline."""

from typing import TYPE_CHECKING

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


class Asymmetric:
    """As `Rendezvous`, but cohorts advance by up to `interposition_budget` layers more per sweep.

    With a pass beside every layer the CPU attends to a cohort while the accelerator is at the
    others' linear stages, and to the others' host rows while it is at the cohort's: NEO's two
    sub-batches. Where not all layers are on the accelerator there are no such passes.
    """

    name = "asymmetric"
    uses_host = True

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Rendezvous' proposal, with passes between the layers."""
        del prices
        return self.proposed(view)

    @staticmethod
    def proposed(view: SchedulerView, *, starts: bool = True) -> StepProposal:
        """Likewise; `starts` as of `Rendezvous.with_passes`."""
        resident = view.config.layers.all_resident
        passes = view.config.interposition_budget if resident else 0
        return Rendezvous().with_passes(view, passes, starts=starts)

"""Cohorts that join every sweep, before it is known whether their last joins happened."""

from typing import TYPE_CHECKING

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.strategies.rendezvous import Rendezvous
from tandem.scheduler.view import SchedulerView

if TYPE_CHECKING:
    from tandem.cost.step_prices import StepPrices


class RendezvousAhead:
    """As `Rendezvous`, but cohorts get on by a layer in each sweep, not in every other one: a token
    takes about half as many. Meant for where the CPU keeps up, as a plan can tell beforehand. A
    cohort whose join is refused joins only what is certain, until its token ends.
    """

    name = "rendezvous-ahead"
    uses_host = True

    def propose(self, view: SchedulerView, prices: "StepPrices | None") -> StepProposal:
        """Rendezvous' proposal, whose cohorts join ahead."""
        del prices
        return Rendezvous().with_passes(view, 0, ahead=True)

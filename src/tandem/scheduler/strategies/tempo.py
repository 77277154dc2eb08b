"""Whether a cohort joins every sweep, or only once it is known that its last joins happened.

With several sweeps in flight a join may be submitted before the one that it follows is decided. If
the CPU keeps up, the cohort gets on in every sweep. If not, sweeps would wait for it, or refuse it.
"""

from dataclasses import replace

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.view import SchedulerView


def with_tempo(proposal: StepProposal, view: SchedulerView, prices: StepPrices) -> StepProposal:
    """With `starts_ahead` if cohorts start and are predicted to get on so."""
    if not proposal.cohort_starts or view.config.launch_ahead_steps == 1:
        return proposal
    counter = StepCounter(view, prices)
    cohorts = (*counter.under_way(), *counter.cohorts(proposal.cohort_starts))
    crossing = counter.crossing(cohorts, proposal.interposed_passes)
    ahead = prices.keeps_up(counter.work(proposal, crossing))
    return replace(proposal, starts_ahead=ahead)

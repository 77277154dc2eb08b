"""Whether a cohort joins every sweep, or only once it is known that its last joins happened.

With several sweeps in flight a join may be submitted before the one that it follows is decided. If
the CPU keeps up, the cohort gets on in every sweep. If not, sweeps would wait for it, or refuse it.
"""

from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter


def with_tempo(proposal: StepProposal, counter: StepCounter) -> StepProposal:
    """With `starts_ahead` if cohorts start and are predicted to get on so.

    Args:
        counter: over the proposal's view.
    """
    if not proposal.cohort_starts or counter.view.config.launch_ahead_steps == 1:
        return proposal
    cohorts = (*counter.under_way, *counter.cohorts(proposal.cohort_starts))
    crossing = counter.crossing(cohorts, proposal.interposed_passes)
    prices = counter.prices
    ahead = prices.late_s(prices.sides(counter.work(proposal, crossing))) <= 0.0
    return proposal._replace(starts_ahead=True) if ahead else proposal

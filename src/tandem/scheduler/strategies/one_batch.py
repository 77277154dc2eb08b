"""One batch that waits for the CPU, where nobody decodes on the accelerator."""

import numpy as np

from tandem.cost.step_prices import CohortWork
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.step_work import StepCounter
from tandem.scheduler.strategies.ride_along import RideAlong


def or_one_batch(proposal: StepProposal, counter: StepCounter) -> StepProposal:
    """The proposal, or all rows in one batch if that makes more useful tokens per second.

    Of requests that decode on the host alone. NEO and APEX compare sub-batches with the accelerator
    alone, which then has prompts only: two read each layer's weights twice, and steps of few tokens
    of prompts hide little of the CPU's attention.
    """
    view, prices = counter.view, counter.prices
    decodes = view.runnable.decodes
    if not len(decodes) or view.cohorts or not view.hosted(decodes).all():
        return proposal
    together = RideAlong().propose(view, prices)
    apart = prices.forecast(counter.work(proposal, _cohorts(proposal, counter)))
    one = prices.forecast(counter.work(together, ()))
    bound_s = view.config.tpot_bound_s
    if bound_s is not None and one.time_s > max(bound_s, apart.time_s):
        return proposal
    weight = counter.prompt_weight(decodes, one.prompts) if one.prompts else 1.0
    better = one.useful_tokens_per_s(weight) > apart.useful_tokens_per_s(weight)
    return together if better else proposal


def _cohorts(proposal: StepProposal, counter: StepCounter) -> tuple[CohortWork, ...]:
    """Those that start, and such as the next steps will start of the other rows, in the mean."""
    if not proposal.cohort_starts:
        return ()
    config, taken = counter.view.config, np.concatenate([proposal.decode, *proposal.cohort_starts])
    others = np.setdiff1d(counter.view.runnable.decodes, taken)
    size = config.max_cohort_rows
    later = [others[at : at + size] for at in range(0, len(others), size)]
    members = [*proposal.cohort_starts, *later][: config.max_cohorts]
    aheads = [False] * len(members)
    return counter.in_the_mean(counter.cohorts(members), proposal.interposed_passes, aheads)

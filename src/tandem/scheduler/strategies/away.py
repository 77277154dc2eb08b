"""Steps of the accelerator alone while rows lie on the host, which wait there for room on it."""

import numpy as np

from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import Runnable
from tandem.scheduler.strategies.filling import StepFiller
from tandem.scheduler.strategies.rendezvous import joining
from tandem.scheduler.view import SchedulerView


def may_be_away(view: SchedulerView) -> bool:
    """Whether all requests could lie on the accelerator whole, each by itself, and it is nobody's
    wish that they do not. Of those that wait, the first one counts: others come to be it.
    """
    config, room = view.config, view.kv.total().device
    if config.kv_placement != "auto":
        return False
    first = next(iter(view.waiting), None)
    longest = 0 if first is None else first.limit
    owned = view.rows.owned()
    if len(owned):
        longest = max(longest, int(view.rows.limit[owned].max()))
    return -(-(longest - 1) // config.block_size) <= room


def away(view: SchedulerView) -> StepProposal:
    """What `gpu-only` would do, with rows on the host set aside, and cohorts that are under way
    crossing on to their tokens' ends.
    """
    decodes, prefills = view.runnable
    behind = view.behind
    joins, ending = joining(view.cohorts.values(), one_ends=_one_ends(view))
    mine = Runnable(_not_there(view, decodes), _not_there(view, prefills))
    here = view._replace(behind=_not_there(view, behind)) if len(behind) else view
    crosses = bool(view.cohorts)
    filler = StepFiller(here, uses_host=False, crosses=crosses, ending=ending)
    proposal = filler.fill(mine, (), joins)
    leaving = [
        row
        for row in np.concatenate([decodes, prefills, behind]).tolist()
        if view.rows.num_host_blocks[row] and row not in proposal.preempt
    ]
    aside = tuple(row for row in leaving if _may_be_set_aside(view, row))
    divided = tuple(row for row in leaving if not _lies_there_whole(view, row))
    preempt = (*proposal.preempt, *divided)
    return proposal._replace(set_aside=aside, preempt=preempt)


def _one_ends(view: SchedulerView) -> bool:
    return 0 < view.config.max_sampled_rows < view.config.max_num_seqs


def _not_there(view: SchedulerView, rows: LongArray) -> LongArray:
    """Those that have nothing on the host."""
    return rows[view.rows.num_host_blocks[rows] == 0]


def _lies_there_whole(view: SchedulerView, row: int) -> bool:
    return view.rows.num_host_blocks[row] == view.rows.num_blocks[row]


def _may_be_set_aside(view: SchedulerView, row: int) -> bool:
    return _lies_there_whole(view, row) and view.rows.drained(row)

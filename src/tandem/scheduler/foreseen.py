"""A run of steps in which rows decode, and what strategies will see in each of them.

Of all that a strategy may look at, such steps change only how many tokens and blocks the run's rows
have, when they were last named, and how long a choice is kept to: all of it is known beforehand.
"""

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import LongArray
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.base import Repeats
from tandem.scheduler.view import SchedulerView

IDS_PER_STEP = 2
"""A sweep's and its sampling's."""


@dataclass(frozen=True, slots=True)
class SteadyRun:
    """Steps that would all be alike.

    Attributes:
        steps: most of them.
        in_flight: the sweep that has been submitted before them.
        rows: int64 [rows]; those that decode. All others rest on the host throughout.
        positions: int64 [rows]; of the first step's tokens. held: blocks before it.
        on_host: bool [rows]; which of them grow in host memory; they do so throughout.
        elsewhere: int64 [rows]; tokens that each has in the other tier.
    """

    steps: int
    in_flight: int
    rows: LongArray
    positions: LongArray
    held: LongArray
    on_host: NDArray[np.bool_]
    elsewhere: LongArray


@dataclass(frozen=True, slots=True)
class FirstStep:
    """How a run's first step was chosen.

    Attributes:
        view: before it.
        strategy: to be asked for each step after it; None: its choice stays as it is.
    """

    view: SchedulerView
    proposal: StepProposal
    strategy: Repeats | None


def view_after(scheduler: Scheduler, run: SteadyRun, first: FirstStep, steps: int) -> SchedulerView:
    """What the strategy will see after so many of a run's steps; to be asked before they are taken.

    What is free is as it is now, and so more than it will be.
    """
    now, rows = scheduler.rows, run.rows
    size = scheduler.config.block_size
    table = copy.copy(first.view.rows)
    table.submitted, table.num_blocks = now.submitted.copy(), now.num_blocks.copy()
    table.num_host_blocks, table.last_step = now.num_host_blocks.copy(), now.last_step.copy()
    more = np.maximum(0, -(-(run.positions + steps) // size) - run.held)
    table.submitted[rows] += steps
    table.num_blocks[rows] += more
    table.num_host_blocks[rows] += more * run.on_host
    table.last_step[rows] += IDS_PER_STEP * steps
    return first.view._replace(
        rows=table,
        next_step=first.view.next_step + IDS_PER_STEP * steps,
        last_way=first.proposal.way,
        turn=scheduler.turn_of(steps_later(first.proposal, steps - 1), first.view),
    )


def steps_later(proposal: StepProposal, steps: int) -> StepProposal:
    """The same choice, made so many steps later for as many sweeps less."""
    if not (proposal.sweeps and steps):
        return proposal
    return proposal._replace(sweeps=max(0, proposal.sweeps - steps))

"""A strategy for tests that changes its mind at every step, and checks what the others propose."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import RowState
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy
from tandem.scheduler.view import SchedulerView


class SwitchingStrategy:
    """Draws one of several strategies for every proposal, and whether cohorts join ahead.

    Args:
        strategies: to choose from; requests may use the host tier if any of them does.
        seed: of the choices.
    """

    name = "switching"

    def __init__(self, strategies: Sequence[Strategy], seed: int) -> None:
        self._strategies = list(strategies)
        self._random = random.Random(seed)
        self.used: set[str] = set()

    @property
    def uses_host(self) -> bool:
        return any(strategy.uses_host for strategy in self._strategies)

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The drawn strategy's; another's if that one could never go on by itself.

        (GPU-only parks cohorts and keeps out what does not fit the device.)
        """
        for strategy in self._random.sample(self._strategies, len(self._strategies)):
            proposal = strategy.propose(view, prices)
            check_ranks(view, proposal)
            if not proposal.empty:
                self.used.add(strategy.name)
            if not (proposal.empty and view.idle):
                ahead = self._random.random() < 0.5
                return proposal._replace(starts_ahead=ahead)
        return StepProposal()


@dataclass(frozen=True, slots=True)
class Switching:
    """Names of strategies to switch between, and the seed of the choices."""

    names: tuple[str, ...]
    seed: int

    def make(self) -> SwitchingStrategy:
        """One that has drawn nothing yet."""
        return SwitchingStrategy([make_strategy(name) for name in self.names], self.seed)


def check_ranks(view: SchedulerView, proposal: StepProposal) -> None:
    """The first in rank loses its memory to nobody.

    Rows that drain already cannot want memory, so whoever has the best rank of the others is first.
    """
    rows = view.rows
    wanting = np.flatnonzero((rows.state != RowState.FREE) & (rows.state != RowState.DRAINING))
    if len(proposal.preempt) and len(wanting):
        first = int(wanting[np.argmin(rows.order[wanting])])
        assert first not in proposal.preempt, f"row {first}, first in rank, is to be preempted"
    assert len(set(proposal.preempt)) == len(proposal.preempt), "a row is preempted twice"

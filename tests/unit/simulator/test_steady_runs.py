"""What runs of steps foresee, step by step, against what happens when each step is taken."""

from collections import Counter

import numpy as np
import pytest
from tests.unit.simulator.setups import Case, in_steps, workload

from tandem.cost.step_prices import StepPrices
from tandem.plan.binding import LongArray
from tandem.plan.program import StepProgram
from tandem.scheduler.foreseen import view_after
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.scheduler import Proposed
from tandem.scheduler.steady import SteadyDecode
from tandem.scheduler.strategies.base import Repeats, Strategy
from tandem.scheduler.turn import Turn
from tandem.scheduler.view import SchedulerView
from tandem.simulator.build import Machine, Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.record import Record

COLUMNS = ("state", "submitted", "num_blocks", "num_host_blocks", "pending", "last_step")


class Watched:
    """A strategy, and a run that is looked at while the scheduler takes its steps by itself."""

    def __init__(self, inner: Strategy, machine: Machine) -> None:
        assert isinstance(inner, Repeats)
        self.name, self.uses_host = inner.name, inner.uses_host
        self._inner, self._asked = inner, inner
        self._scheduler, self._executor = machine.scheduler, machine.executor
        self._steady = SteadyDecode(machine.scheduler)
        self._rows: LongArray | None = None
        self._ahead: list[tuple[SchedulerView | None, bool]] = []
        self.found: Counter[str] = Counter()

    def look_for_a_run(self) -> None:
        """Before the scheduler takes a step: what is foreseen is foreseen now."""
        if self._ahead or not self._scheduler.may_submit:
            return
        latest = self._executor.latest
        found = self._steady.find(latest[0].load.lanes[0].tokens if latest else 0)
        if found is not None:
            run, first = found
            self._rows = run.rows
            self._ahead = [(None, True)]
            for steps in range(1, run.steps):
                later = view_after(self._scheduler, run, first, steps)
                self._ahead.append((later, self._steady.goes_on(run, first, steps)))

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        proposal = self._inner.propose(view, prices)
        if self._rows is not None and self._ahead:
            foreseen, goes_on = self._ahead.pop(0)
            if foreseen is not None:
                compare(foreseen, view)
            if goes_on:
                assert proposal.only_goes_on
                assert np.array_equal(proposal.decode, self._rows)
                rests = len(view.runnable.decodes) > len(self._rows)
                self.found["rest" if rests else "all go on"] += 1
            else:
                self.found["ends"] += 1
                self._ahead = []
        return proposal

    def repeats(
        self, proposal: StepProposal, view: SchedulerView, prices: StepPrices | None
    ) -> bool:
        return self._asked.repeats(proposal, view, prices)


def compare(foreseen: SchedulerView, view: SchedulerView) -> None:
    """All that strategies ask for, but what is free."""
    for column in COLUMNS:
        seen, real = getattr(foreseen.rows, column), getattr(view.rows, column)
        np.testing.assert_array_equal(seen, real, column)
    assert (foreseen.next_step, foreseen.last_way) == (view.next_step, view.last_way)
    assert _turn(foreseen.turn) == _turn(view.turn)
    assert np.array_equal(foreseen.runnable.decodes, view.runnable.decodes)


def _turn(turn: Turn | None) -> tuple[object, ...] | None:
    if turn is None:
        return None
    return turn.way, turn.sweeps, turn.decode.tolist(), turn.able.tolist(), turn.forecast


def watched(plan: Planned, generate: str, requests: int) -> Counter[str]:
    machine = build(plan, counted=True)
    scheduler = machine.scheduler
    strategy = scheduler.strategy = Watched(scheduler.strategy, machine)
    record = Record(workload("64-200", generate, requests).requests)
    schedule = scheduler.schedule

    def looking(proposed: Proposed | None = None) -> list[StepProgram]:
        strategy.look_for_a_run()
        return schedule(proposed)

    scheduler.schedule = looking
    Loop(scheduler, machine.executor, record, machine.token_id, None).run()
    return strategy.found


@pytest.mark.parametrize("name", ["neo", "neo-published", "auto"])
@pytest.mark.parametrize("rows", [(12, 2), (4, 4), (2, 8)])
def test_each_step_is_proposed_as_foreseen(name: str, rows: tuple[int, int]) -> None:
    found = watched(in_steps(Case("ride-along", *rows), name), "100-300", 20)
    assert found["all go on"] + found["rest"] > 100, found
    if name == "auto":  # which weighs again after some steps
        assert found["ends"] > 10, found
    if name.startswith("neo") and rows == (12, 2):
        # the accelerator alone is better, until it is not
        assert found["rest"] > 100, found
        assert found["ends"] > 5, found

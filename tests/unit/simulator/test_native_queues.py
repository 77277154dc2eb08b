"""The compiled queues are Python's to the bit, and leave untold only what nothing depends on."""

from dataclasses import replace

import pytest
from tests.unit.simulator.setups import CASES, LAYERS, Case, in_steps, planned, workload
from tests.unit.simulator.test_cohorts import MIXED, unshared

from tandem.plan.events import Event, LaneAdvanced
from tandem.planner import native
from tandem.scheduler.scheduler import Proposed, Scheduler
from tandem.simulator.build import Machine, Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.outcome import Outcome
from tandem.simulator.record import Record
from tandem.simulator.simulate import outcome_of_run
from tandem.spec.workload import Workload

pytestmark = pytest.mark.skipif(not native.available(), reason=native.unavailable_message())

PLANS = {
    **{name: planned(case, "100-300", "5-60", requests=12) for name, case in CASES.items()},
    "rendezvous-ahead": planned(Case("rendezvous-ahead", 4, 4), requests=12),
    "asymmetric": planned(Case("asymmetric", 4, 4, passes=LAYERS), requests=12),
    "symmetric": planned(Case("symmetric", 0, 8, passes=LAYERS), requests=12),
    "neo": in_steps(Case("ride-along", 4, 4), "neo"),
    "apex": in_steps(Case("ride-along", 4, 4), "apex"),
    "auto": in_steps(Case("ride-along", 4, 4), "auto"),
}


class Run:
    """A run of the loop, by which queues is said, and what the scheduler was told in it."""

    def __init__(self, plan: Planned, requests: Workload, *, compiled: bool) -> None:
        self.machine: Machine = build(plan, counted=True, compiled=compiled)
        self.told: list[Event] = []
        executor, run_until = self.machine.executor, self.machine.executor.run_until

        def telling(limit_s: float) -> list[Event]:
            events = run_until(limit_s)
            self.told += events
            return events

        executor.run_until = telling
        self.record = Record(requests.requests)
        token = self.machine.token_id
        Loop(self.machine.scheduler, executor, self.record, token, None).run()
        self.outcome: Outcome = outcome_of_run(plan, self.machine, self.record, 0)

    def joins(self) -> dict[tuple[int, int], bool]:
        """Whether each join happened, by step and lane; those told with others included."""
        told = [event for event in self.told if isinstance(event, LaneAdvanced)]
        found = {(event.step_id, event.lane): event.joined for event in told}
        assert len(found) == len(told)
        for event in told:
            found |= {(event.step_id, lane): True for lane in event.before}
        assert len(found) == len(told) + sum(len(event.before) for event in told)
        return found


def same(plan: Planned, requests: Workload) -> tuple[Run, Run]:
    """The compiled queues' run, and that of Python's."""
    ours, pythons = (Run(plan, requests, compiled=each) for each in (True, False))
    assert ours.record == pythons.record
    assert ours.outcome == pythons.outcome
    assert ours.machine.executor.now_s == pythons.machine.executor.now_s
    assert ours.joins() == pythons.joins()
    ours.machine.scheduler.check()
    return ours, pythons


@pytest.mark.parametrize("rate", [None, 40.0])
@pytest.mark.parametrize("name", sorted(PLANS))
def test_every_moment_and_every_sum_is_that_of_pythons_queues(
    name: str, rate: float | None
) -> None:
    ours, pythons = same(PLANS[name], workload("100-300", "5-40", 14, rate))
    if name in ("asymmetric", "symmetric"):
        assert len(ours.told) < 0.8 * len(pythons.told)


@pytest.mark.parametrize("passes", [0, 2, 6])
@pytest.mark.parametrize("max_join_wait_s", [0.0, 2e-4])
@pytest.mark.parametrize(
    "case",
    [CASES["spilling, rendezvous"], MIXED, Case("rendezvous-ahead", 4, 6)],
    ids=["few", "some", "ahead"],
)
def test_so_is_what_becomes_of_joins_that_are_refused(
    case: Case, max_join_wait_s: float, passes: int
) -> None:
    plan = unshared(case, max_join_wait_s, passes)
    ours, _ = same(plan, workload(generate="5-40", requests=12))
    if case is not CASES["spilling, rendezvous"] and max_join_wait_s == 0.0:
        assert not all(ours.joins().values())


@pytest.mark.parametrize("name", sorted(PLANS))
def test_whoever_waits_for_news_would_propose_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, waited = Scheduler.schedule, 0

    def checking(self: Scheduler, proposed: Proposed | None) -> list[object]:
        nonlocal waited
        if self._waits_for_news and self.may_submit:
            assert self.strategy.propose(self.view(), self.prices).empty
            assert not self.running.take_moves()
            waited += 1
        return list(schedule(self, proposed))

    monkeypatch.setattr(Scheduler, "schedule", checking)
    plan = PLANS[name]
    tight = replace(plan.plan, device_blocks=min(plan.plan.device_blocks, 40))
    for each in (plan, replace(plan, plan=tight)):
        for rate in (None, 40.0):
            Run(each, workload("100-300", "5-40", 14, rate), compiled=False)
    if name in ("asymmetric", "symmetric", "rendezvous"):
        assert waited > 50

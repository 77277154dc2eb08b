"""Cohorts in virtual time: the scheduler's own programs take as long as their signals say."""

from dataclasses import replace

import pytest
from tests.unit.simulator.setups import CASES, Case, planned, workload
from tests.unit.simulator.signal_times import News, SignalTimes

from tandem.plan.events import Event
from tandem.plan.program import StepProgram
from tandem.planner.demand import Demands
from tandem.planner.footprint import Footprint
from tandem.simulator.build import Machine, Planned, build
from tandem.simulator.costs import ProgramCosts
from tandem.simulator.executor import SimulatedExecutor
from tandem.simulator.loop import Loop
from tandem.simulator.program_queues import PythonQueues
from tandem.simulator.record import Record
from tandem.spec.workload import Workload

MIXED = Case("rendezvous", 4, 6, device_blocks=28)


class Recorder(SimulatedExecutor):
    """Keeps what the scheduler submits, and what it is told."""

    submitted: list[tuple[float, StepProgram]]
    told: list[tuple[float, Event]]

    def submit(self, program: StepProgram) -> None:
        self.submitted.append((self.now_s, program))
        super().submit(program)

    def run_until(self, limit_s: float) -> list[Event]:
        events = super().run_until(limit_s)
        self.told += [(self.now_s, event) for event in events]
        return events


def unshared(case: Case, max_join_wait_s: float | None, passes: int) -> Planned:
    """The case on a host whose cores are slow, and whose memory is fast enough for everything at
    once.

    Args:
        passes: of a cohort's own; 0: it joins where it stands.
    """
    plan = planned(case)
    hardware = plan.question.hardware
    rate = hardware.host.memory_bandwidth_bytes_per_s / 200
    host = replace(
        hardware.host,
        memory_bandwidth_bytes_per_s=rate,
        shared_memory_bandwidth_bytes_per_s=1e18,
    )
    question = replace(plan.question, hardware=replace(hardware, host=host))
    online = replace(
        plan.plan,
        strategy="asymmetric" if passes else plan.plan.strategy,
        interposition_budget=passes,
        max_join_wait_s=plan.plan.max_join_wait_s if max_join_wait_s is None else max_join_wait_s,
    )
    return replace(plan, question=question, plan=online)


def pieces(plan: Planned) -> tuple[Demands, int, tuple[int, ...]]:
    question = plan.question
    demands = Demands(question, Footprint(question).page)
    return demands, plan.plan.block_size, question.model.layer_windows


def recorded(plan: Planned, requests: Workload) -> tuple[Machine, Recorder, Record]:
    machine, hardware = build(plan, preemption="recompute"), plan.question.hardware
    costs = ProgramCosts(*pieces(plan))
    queues = PythonQueues(costs, hardware.host.pool_bytes_per_s)  # which report every event
    launch_s = hardware.accelerator.launch_latency_s
    executor = Recorder(costs, queues, launch_s, machine.token_id)
    executor.submitted, executor.told = [], []
    record = Record(requests.requests)
    Loop(machine.scheduler, executor, record, machine.token_id, None).run()
    return machine, executor, record


@pytest.mark.parametrize("passes", [0, 2, 6])
@pytest.mark.parametrize("max_join_wait_s", [None, 0.0, 2e-4])
@pytest.mark.parametrize("rate", [None, 40.0])
@pytest.mark.parametrize(
    "case", [CASES["rendezvous"], CASES["spilling, rendezvous"], MIXED], ids=["all", "few", "some"]
)
def test_what_the_scheduler_is_told_follows_from_its_programs(
    case: Case, rate: float | None, max_join_wait_s: float | None, passes: int
) -> None:
    plan = unshared(case, max_join_wait_s, passes)
    requests = workload(generate="5-40", requests=12, rate=rate)
    machine, executor, record = recorded(plan, requests)
    times = SignalTimes(*pieces(plan), plan.question.hardware.accelerator.launch_latency_s)
    expected = {
        news: end_s
        for now_s, program in executor.submitted
        for news, end_s in times.run(now_s, program)
    }
    found = {News.of(event): now_s for now_s, event in executor.told}
    assert len(found) == len(executor.told)
    assert found == pytest.approx(expected, rel=1e-9)
    joins = [news.count for news in found if news.kind == "advanced"]
    assert sum(joins) > 20
    if case is MIXED and max_join_wait_s == 0.0:
        assert 0 in joins
    machine.scheduler.check()
    assert not machine.scheduler.has_work
    wanted = {str(i): shape.generated_tokens for i, shape in enumerate(requests.requests)}
    assert dict(record.tokens) == wanted

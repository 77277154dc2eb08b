"""Programs that are counted instead of compiled: the same steps, and the same work in them."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.simulator.setups import CASES, LAYERS, Case, in_steps, planned, workload

from tandem.plan.program import StepProgram
from tandem.scheduler.counted_lanes import CountedBinding
from tandem.scheduler.counting_compiler import CountedProgram
from tandem.simulator.build import Planned, build
from tandem.simulator.loop import Loop
from tandem.simulator.record import Record
from tandem.spec.workload import Workload

COHORTS = {
    "rendezvous-ahead": planned(Case("rendezvous-ahead", 4, 4), requests=12),
    "asymmetric": planned(Case("asymmetric", 4, 4, passes=LAYERS), requests=12),
    "symmetric": planned(Case("symmetric", 0, 8, passes=LAYERS), requests=12),
}


class Submitted:
    """What an engine's executor was given, program by program."""

    def __init__(self, plan: Planned, requests: Workload, *, counted: bool) -> None:
        machine = build(plan, counted=counted)
        self.programs: list[tuple[Any, ...]] = []
        self.num_counted = 0
        self._costs, self._submit = machine.executor._costs, machine.executor.submit
        machine.executor.submit = self._take
        record = Record(requests.requests)
        Loop(machine.scheduler, machine.executor, record, machine.token_id, None).run()

    def _take(self, program: StepProgram) -> None:
        self.num_counted += _is_counted(program)
        shape = program.step_id, program.template, program.sampling_lanes, program.forward_step
        self.programs.append((*shape, self._costs.load(program).lanes))
        self._submit(program)


def _is_counted(program: StepProgram) -> bool:
    """Whether nobody could compute it: lanes have no arrays, sampled rows no parameters."""
    lanes = all(isinstance(slot.binding, CountedBinding) for slot in program.lanes)
    sampling = all(not len(rows.temperature) for rows in program.sampling)
    return isinstance(program, CountedProgram) or (
        bool(program.lanes or program.sampling) and lanes and sampling
    )


@pytest.mark.parametrize("name", ["asymmetric", "symmetric", "rendezvous-ahead", "neo", "apex"])
def test_so_are_programs_of_cohorts(name: str) -> None:
    plan = COHORTS[name] if name in COHORTS else in_steps(Case("ride-along", 4, 4), name)
    requests = workload("1-300", "1-60", 16, 40.0)
    compiled, counted = (Submitted(plan, requests, counted=each) for each in (False, True))
    assert counted.programs == compiled.programs
    assert compiled.num_counted == 0
    assert counted.num_counted == len(counted.programs)


@pytest.mark.parametrize(
    "name",
    sorted(CASES.keys() - {"MLPs lent", "MLPs", "spilling, rendezvous"}),
)
def test_counted_programs_are_those_that_would_be_compiled(name: str) -> None:
    plan = planned(CASES[name], "100-300", "5-60", requests=12)
    # prompts in several chunks, some of which end with one token
    plan = replace(plan, plan=replace(plan.plan, max_num_batched_tokens=96))
    requests = workload("1-300", "1-60", 16, 40.0)
    compiled, counted = (Submitted(plan, requests, counted=each) for each in (False, True))
    assert counted.programs == compiled.programs
    assert compiled.num_counted == 0
    # rows that lie in both tiers are compiled, and copies of whole rows; nothing else is
    some = name.startswith("spilling") or CASES[name].prompts_here > 0
    assert 0 < counted.num_counted <= len(counted.programs)
    assert some or counted.num_counted == len(counted.programs)

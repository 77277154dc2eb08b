"""What is priced once for many operations is what each of them is priced at by itself."""

from typing import Any

import pytest
from tests.unit.simulator.setups import LAYERS, Case, in_steps, planned, workload

from tandem.plan.program import Part
from tandem.planner.demand import Demand
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import group_works
from tandem.simulator.build import Planned, build
from tandem.simulator.costs import PricedShape, ProgramCosts, ProgramLoad
from tandem.simulator.loop import Loop
from tandem.simulator.record import Record

PLANS = {
    "ride-along": planned(Case("ride-along", 4, 4), requests=12),
    "rendezvous": planned(Case("rendezvous", 4, 4), requests=12),
    "asymmetric": planned(Case("asymmetric", 4, 4, passes=LAYERS), requests=12),
    "symmetric": planned(Case("symmetric", 0, 8, passes=LAYERS), requests=12),
    "neo": in_steps(Case("ride-along", 4, 4), "neo"),
    "windows": planned(Case("ride-along", 4, 4, gemma=True), requests=12),
    "spilling": planned(Case("rendezvous", 6, 2, device_blocks=14, host_blocks=40), requests=12),
    "prompts here": planned(
        Case("ride-along", 4, 4, device_blocks=26, prompts_here=2), requests=12
    ),
}


class OneByOne(ProgramCosts):
    """Each operation by itself, with nothing remembered."""

    compared = 0

    def priced(
        self, schedule: Schedule, load: ProgramLoad, left_out: frozenset[int]
    ) -> tuple[PricedShape, list[Demand]]:
        shape, by_shape = super().priced(schedule, load, left_out)
        pages = iter(load.transfers)
        demands = [
            self._demands.of_blocks(op.queue, len(next(pages).source_blocks))
            if op.part is Part.PAGES
            else self._demand(op, load, left_out)
            for op in schedule.ops
        ]
        assert shape.works(by_shape) == group_works(schedule, demands)
        self.compared += len(demands)
        return shape, by_shape


def compared(plan: Planned, monkeypatch: pytest.MonkeyPatch) -> int:
    def costs(*given: Any, **named: Any) -> OneByOne:
        return OneByOne(*given, **named)

    monkeypatch.setattr("tandem.simulator.build.ProgramCosts", costs)
    machine = build(plan)
    record = Record(workload(requests=12).requests)
    Loop(machine.scheduler, machine.executor, record, machine.token_id, None).run()
    used = machine.executor._costs
    assert isinstance(used, OneByOne)
    return used.compared


@pytest.mark.parametrize("name", PLANS)
def test_all_programs_take_what_their_operations_take(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert compared(PLANS[name], monkeypatch) > 1000


def test_passes_of_one_cohort_are_priced_once() -> None:
    machine = build(PLANS["symmetric"])
    costs = machine.executor._costs
    record = Record(workload(requests=12).requests)
    Loop(machine.scheduler, machine.executor, record, machine.token_id, None).run()
    most = max(costs._schedules.values(), key=lambda known: len(known[1].ops))[1]
    priced = [found for shape, found in costs._priced.items() if shape[0] == id(most)]
    assert priced
    assert all(len(found.ops) < 0.6 * len(most.ops) for found in priced)

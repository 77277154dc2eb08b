"""What recurs in the schedules of sweeps."""

import pytest

from tandem.models.catalogue import plannable_spec
from tandem.plan.program import LaneShape
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.fluid.alike import alike_groups
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.queues import ACCEL
from tandem.planner.fluid.schedule import Schedules

RIDING = LaneShape(host=True, head=True)


def schedule_of(name: str, lane: LaneShape, streamed: int = 0) -> Schedule:
    model = plannable_spec(name)
    schedules = Schedules.of_model(model)
    layers, _ = schedules.layers(Elsewhere(streamed), prompts=False)
    return schedules.of((lane,), layers)


@pytest.mark.parametrize(("name", "layers"), [("llama-3.1-8b", 1), ("gemma-2-9b", 2)])
def test_a_sweep_that_rides_along_recurs_by_kinds_of_layers(name: str, layers: int) -> None:
    schedule = schedule_of(name, RIDING)
    alike = alike_groups(schedule)
    assert alike is not None
    # stages, attention on either side, and a copy each way, for layers of each window
    assert alike.period == 5 * layers
    assert alike.per_queue == (2 * layers, layers, layers, layers, 0, 0)
    assert alike.end - alike.begin > 0.9 * len(schedule.groups)
    for mark in alike.marks:
        assert schedule.groups[mark].queue == ACCEL
        assert schedule.groups[mark].waits


def test_every_group_is_the_one_a_period_before() -> None:
    schedule = schedule_of("llama-3.1-8b", RIDING)
    alike = alike_groups(schedule)
    assert alike is not None
    for place in range(alike.begin, alike.end - alike.period):
        one, other = schedule.groups[place], schedule.groups[place + alike.period]
        assert (one.queue, one.ops, one.event) == (other.queue, other.ops, other.event)
        for group in (one, other):
            assert group.joins is None
            assert group.event is None
        assert [queue for queue, _ in one.waits] == [queue for queue, _ in other.waits]
        for (queue, value), (_, later) in zip(one.waits, other.waits, strict=True):
            assert later - value == alike.per_queue[queue]


def test_where_all_runs_back_to_back_nothing_recurs() -> None:
    assert alike_groups(schedule_of("llama-3.1-8b", LaneShape(host=False, head=True))) is None

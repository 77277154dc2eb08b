"""Completions may arrive in any order that the queues allow; reports follow causes."""

import random
from collections import deque

import pytest

from tandem.plan.program import LaneShape, Queue, StepProgram
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.report_order import ReportOrder
from tandem.runtime.running import Running
from tandem.spec.tier import Tier

TEMPLATES = (
    sweep_template(2, (LaneShape(device=True, host=True), LaneShape(suspends=True, host=True))),
    sampling_template(1),
    sweep_template(2, (LaneShape(), LaneShape(cursor=0, suspends=True, host=True, guarded=True))),
    sampling_template(2),
    transfer_template((Tier.DEVICE, Tier.HOST)),
)


def submitted() -> list[Running]:
    """All operations of the programs, in order of submission."""
    base = dict.fromkeys(Queue, 0)
    made: list[Running] = []
    for step, template in enumerate(TEMPLATES):
        context = ProgramContext(StepProgram(step, template), [], base=dict(base))
        made += [Running(op, context) for op in template.ops]
        for queue, count in template.counts:
            base[queue] += count
    return made


@pytest.mark.parametrize("seed", range(20))
def test_causes_are_reported_before_effects_whatever_arrives_first(seed: int) -> None:
    rng, order = random.Random(seed), ReportOrder()
    arriving = {queue: deque[Running]() for queue in Queue}
    for running in submitted():
        arriving[running.op.queue].append(running)
    reported: list[Running] = []
    done = dict.fromkeys(Queue, 0)
    while left := [queue for queue, held in arriving.items() if held]:
        for running in order.completed(arriving[rng.choice(left)].popleft()):
            assert all(done[on] >= value for on, value in running.waits())
            done[running.op.queue] += 1
            assert done[running.op.queue] == running.value
            reported.append(running)
    assert len(reported) == len(submitted())


def test_nothing_is_held_longer_than_its_causes() -> None:
    order = ReportOrder()
    for running in submitted():
        assert order.completed(running) == [running]

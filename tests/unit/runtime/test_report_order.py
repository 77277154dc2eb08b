"""Completions may arrive in any order that the queues allow; reports follow causes."""

import random
from collections import deque

import pytest

from tandem.plan.program import LaneShape, Queue, StepProgram
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.report_order import ReportOrder
from tandem.runtime.running import Completed, Running
from tandem.spec.tier import Tier

TEMPLATES = (
    sweep_template(2, (LaneShape(device=True, host=True), LaneShape(suspends=True, host=True))),
    sampling_template(1),
    sweep_template(2, (LaneShape(), LaneShape(cursor=0, suspends=True, host=True, guarded=True))),
    sampling_template(2),
    transfer_template((Tier.DEVICE, Tier.HOST)),
)


def submitted() -> list[Completed]:
    """All operations of the programs, in order of submission."""
    base = dict.fromkeys(Queue, 0)
    made: list[Completed] = []
    for step, template in enumerate(TEMPLATES):
        context = ProgramContext(StepProgram(step, template), [], base=dict(base))
        made += [Completed(Running(op, context), 0.0, 0.0) for op in template.ops]
        for queue, count in template.counts:
            base[queue] += count
    return made


@pytest.mark.parametrize("seed", range(20))
def test_causes_are_reported_before_effects_whatever_arrives_first(seed: int) -> None:
    rng, order = random.Random(seed), ReportOrder()
    arriving = {queue: deque[Completed]() for queue in Queue}
    for completed in submitted():
        arriving[completed.running.op.queue].append(completed)
    reported: list[Running] = []
    done = dict.fromkeys(Queue, 0)
    while left := [queue for queue, held in arriving.items() if held]:
        for running, *_ in order.completed(arriving[rng.choice(left)].popleft()):
            assert all(done[on] >= value for on, value in running.waits())
            done[running.op.queue] += 1
            assert done[running.op.queue] == running.value
            reported.append(running)
    assert len(reported) == len(submitted())


def test_nothing_is_held_longer_than_its_causes() -> None:
    order = ReportOrder()
    for completed in submitted():
        assert order.completed(completed) == [completed]

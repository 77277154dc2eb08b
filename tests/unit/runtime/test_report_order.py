"""Completions may arrive in any order that the queues allow; reports follow causes."""

import random
from collections import deque

import pytest

from tandem.plan.hybrid_sweep import hybrid_template
from tandem.plan.op_runs import op_runs
from tandem.plan.program import LaneShape, Queue, StepProgram
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.report_order import ReportOrder
from tandem.runtime.running import Completed, Launch
from tandem.spec.tier import Tier

TEMPLATES = (
    sweep_template(2, (LaneShape(device=True, host=True), LaneShape(suspends=True, host=True))),
    sampling_template(1),
    sweep_template(2, (LaneShape(), LaneShape(cursor=0, suspends=True, host=True, guarded=True))),
    sampling_template(2),
    transfer_template((Tier.DEVICE, Tier.HOST)),
    hybrid_template(),
    sampling_template(1),
)


def submitted() -> list[Completed]:
    """All runs of the programs, in order of submission."""
    base = dict.fromkeys(Queue, 0)
    made: list[Completed] = []
    for step, template in enumerate(TEMPLATES):
        context = ProgramContext(StepProgram(step, template), [], base=dict(base))
        made += [Completed(Launch(run, context), ((0.0, 0.0),)) for run in op_runs(template)]
        for queue, count in template.counts:
            base[queue] += count
    return made


@pytest.mark.parametrize("seed", range(20))
def test_causes_are_reported_before_effects_whatever_arrives_first(seed: int) -> None:
    rng, order = random.Random(seed), ReportOrder()
    arriving = {queue: deque[Completed]() for queue in Queue}
    for completed in submitted():
        arriving[completed.launch.queue].append(completed)
    reported: list[Launch] = []
    done = dict.fromkeys(Queue, 0)
    while left := [queue for queue, held in arriving.items() if held]:
        queue = rng.choice(left)
        some = rng.randint(1, min(3, len(arriving[queue])))  # of a queue, several may come at once
        for launch, _ in order.completed(queue, [arriving[queue].popleft() for _ in range(some)]):
            assert all(done[on] >= value for on, value in launch.told_after)
            done[launch.queue] += len(launch.run.ops)
            assert done[launch.queue] == launch.value
            reported.append(launch)
    assert len(reported) == len(submitted())


def test_nothing_is_held_longer_than_its_causes() -> None:
    order = ReportOrder()
    for completed in submitted():
        assert order.completed(completed.launch.queue, [completed]) == [completed]


def test_a_graph_is_told_of_after_the_part_that_the_host_has_in_it() -> None:
    """Which the graph waits for by itself; but it goes on also if that part has failed."""
    template = hybrid_template()
    context = ProgramContext(StepProgram(0, template), [], base=dict.fromkeys(Queue, 0))
    attended, swept = (Completed(Launch(run, context), ((0.0, 0.0),)) for run in op_runs(template))
    order = ReportOrder()
    assert not swept.launch.waits
    assert order.completed(Queue.ACCEL, [swept]) == []
    assert order.completed(Queue.CPU, [attended]) == [attended, swept]

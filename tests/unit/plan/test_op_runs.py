"""Which operations one call executes, and whose end may be told with that of a later one."""

import pytest

from tandem.plan.op_runs import OpRun, op_runs
from tandem.plan.program import EventKind, LaneShape, OpKind, Part, ProgramTemplate, Queue
from tandem.plan.sweep_layers import StreamedLayers, SweepLayers
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.spec.tier import Tier

BOTH = LaneShape(host=True)
COHORT = LaneShape(cursor=1, suspends=True, device=False, host=True)
BESIDE = LaneShape(cursor=1, suspends=True, device=False, host=True, beside=0)
RAISED = frozenset({Queue.D2H})
TEMPLATES = (
    sweep_template(3, (LaneShape(),)),
    sweep_template(3, (BOTH,)),
    sweep_template(3, (BOTH, COHORT)),
    sweep_template(3, (LaneShape(), BESIDE)),
    sweep_template(6, (BOTH, LaneShape()), SweepLayers(StreamedLayers((0, 1, 2, 3)), on_cpu=(5,))),
    sweep_template(4, (BOTH,), SweepLayers(mlp_on_cpu=(1, 2))),
    sampling_template(3),
    transfer_template((Tier.DEVICE, Tier.HOST)),
)


def named(run: OpRun) -> list[list[str]]:
    """An operation is its part, or its kind if it has none; by part of the run."""
    return [
        [op.kind.value if op.part is Part.NONE else op.part.value for op in part]
        for part in run.parts
    ]


def runs_of(template: ProgramTemplate, queue: Queue, layer: int) -> list[OpRun]:
    """Of a queue, those that begin in a layer."""
    runs = op_runs(template, RAISED)
    return [run for run in runs if run.first.queue is queue and run.first.layer == layer]


def test_what_the_accelerator_does_alone_is_one_run_with_times_of_what_is_priced() -> None:
    sweep, head = op_runs(sweep_template(2, (LaneShape(),)))
    assert named(sweep) == [
        ["embed", "pre"], ["append", "attend"], ["merge", "post", "pre"], ["append", "attend"],
        ["merge", "post"],
    ]  # fmt: skip
    assert sweep.last.event is EventKind.LANE_DONE  # which the head need not be waited for
    assert named(head) == [["head"]]


def test_a_hybrid_layer_is_five_runs() -> None:
    template = sweep_template(3, (BOTH,))
    assert [named(run) for run in runs_of(template, Queue.ACCEL, 1)] == [
        [["append", "attend"]],
        [["merge", "post", "pre"]],
    ]
    for queue in (Queue.D2H, Queue.H2D):
        (copied,) = runs_of(template, queue, 1)
        assert len(copied.ops) == 1
    (attended,) = runs_of(template, Queue.CPU, 1)
    assert named(attended) == [["append", "attend"]]


def test_no_end_of_a_hybrid_layer_is_told_at_once() -> None:
    """Streams wait for each other by events, native threads for what the copies down raise."""
    told = [run for run in op_runs(sweep_template(3, (BOTH,)), RAISED) if not run.told_later]
    layers = {Queue.ACCEL: 2, Queue.D2H: 2, Queue.CPU: 2, Queue.H2D: 2}
    assert {run.last.queue: run.last.layer for run in told} == layers
    by_threads = [run for run in op_runs(sweep_template(3, (BOTH,))) if not run.told_later]
    downs = [run for run in by_threads if run.last.queue is Queue.D2H]
    assert [run.last.layer for run in downs] == [0, 1, 2]


def test_what_means_something_in_the_middle_is_told_at_once_with_all_that_it_comes_from() -> None:
    """Else the scheduler would hear of a cohort's join when the sweep has ended."""
    template = sweep_template(4, (BOTH, COHORT))
    (join,) = [op for op in template.ops if op.joins is not None]
    runs = op_runs(template, RAISED)
    behind = next(i for i, run in enumerate(runs) if run.last is join) + 1
    reported, held = dict.fromkeys(Queue, 0), dict[Queue, list[OpRun]]()
    for run in runs[:behind]:
        held.setdefault(run.first.queue, []).append(run)
    while movable := [  # as far as is told
        queue
        for queue, each in held.items()
        if any(not run.told_later for run in each)
        and all(reported[wait.queue] >= wait.ordinal for wait in each[0].waits)
    ]:
        reported[movable[0]] = held[movable[0]].pop(0).last.ordinal
    assert reported[join.queue] == join.ordinal
    assert len([run for run in runs if not run.told_later]) < len(runs) / 2


def test_what_the_cpu_computes_is_not_one_run_with_its_attention() -> None:
    """Native threads attend; the queue's own computes."""
    template = sweep_template(3, (BOTH,), SweepLayers(on_cpu=(0, 1, 2)))
    for run in op_runs(template):
        if run.first.queue is Queue.CPU:
            assert len(run.parts) == 1
            attends = {op.kind in (OpKind.APPEND, OpKind.ATTEND) for op in run.ops}
            assert len(attends) == 1


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_nobody_waits_for_the_inner_operations_of_a_run_nor_they_for_anybody(
    template: ProgramTemplate, single: bool
) -> None:
    done, waited = dict.fromkeys(Queue, 0), {queue: dict[Queue, int]() for queue in Queue}
    for run in op_runs(template, RAISED, single=single):
        assert not single or len(run.ops) == 1
        first, last = run.first, run.last
        assert first.ordinal == done[first.queue] + 1
        for wait in run.waits:
            waited[first.queue][wait.queue] = wait.ordinal
            assert done[wait.queue] >= wait.ordinal  # runs come behind what they wait for
        for op in run.ops:
            assert op.queue is first.queue
            for wait in op.waits:
                known = waited[op.queue].get(wait.queue, done[op.queue])
                assert wait.queue is op.queue or known >= wait.ordinal
            assert op is first or op.joins is None
            assert op is last or (op.event is None and op.raises is None)
        if run.told_later:
            assert last.event is None
            assert last.raises is None
            assert last.joins is None
        done[first.queue] = last.ordinal
        inner = {(op.queue, op.ordinal) for op in run.ops if op is not last}
        others = {
            (wait.queue, wait.ordinal)
            for op in template.ops
            if op.queue is not first.queue
            for wait in op.waits
        }
        assert not inner & others
    assert done == dict.fromkeys(Queue, 0) | dict(template.counts)


@pytest.mark.parametrize("template", TEMPLATES, ids=range(len(TEMPLATES)))
def test_the_last_of_a_queue_and_what_means_something_is_told(template: ProgramTemplate) -> None:
    """The next program, or who closes the engine, waits for it."""
    told = {
        (run.last.queue, run.last.ordinal)
        for run in op_runs(template, RAISED)
        if not run.told_later
    }
    assert {*template.counts} <= told
    for op in template.ops:
        if op.event is not None or op.raises is not None or op.joins is not None:
            assert (op.queue, op.ordinal) in told

"""Whose end may be told with that of a later operation."""

from tandem.plan.program import EventKind, LaneShape, OpKind, Part, ProgramTemplate, Queue
from tandem.plan.sweep_layers import StreamedLayers, SweepLayers
from tandem.plan.templates import sampling_template, sweep_template, transfer_template
from tandem.plan.told_later import told_later
from tandem.spec.tier import Tier

BOTH = LaneShape(host=True)
COHORT = LaneShape(cursor=1, suspends=True, device=False, host=True)


def kinds(template: ProgramTemplate, layer: int) -> list[tuple[Queue, OpKind, Part]]:
    """Of a layer, those that may wait."""
    later = told_later(template)
    ops = [op for op in template.ops if op.layer == layer and (op.queue, op.ordinal) in later]
    return [(op.queue, op.kind, op.part) for op in ops]


def test_of_a_hybrid_layer_the_copies_and_what_they_wait_for_are_told_at_once() -> None:
    accel, none = Queue.ACCEL, Part.NONE
    assert kinds(sweep_template(3, (BOTH,)), 1) == [
        (Queue.CPU, OpKind.APPEND, none),
        (accel, OpKind.APPEND, none),
        (accel, OpKind.ATTEND, none),
        (accel, OpKind.MERGE, none),
        (accel, OpKind.STAGE, Part.POST),
    ]


def test_what_others_wait_for_is_told_and_what_means_something() -> None:
    resident = SweepLayers(StreamedLayers((0, 1, 2, 3)), on_cpu=(5,))
    for template in (
        sweep_template(6, (BOTH, LaneShape()), resident),
        sweep_template(3, (BOTH, COHORT)),
        sampling_template(3),
        transfer_template((Tier.DEVICE, Tier.HOST)),
    ):
        later = told_later(template)
        for op in template.ops:
            for wait in op.waits:
                crosses = wait.queue is not op.queue
                assert not (crosses and (wait.queue, wait.ordinal) in later)
            if (op.queue, op.ordinal) in later:
                assert op.event is None
                assert op.raises is None
                assert op.queue in (Queue.ACCEL, Queue.CPU)


def test_the_last_of_a_queue_is_told() -> None:
    """The next program, or who closes the engine, waits for it."""
    template = sweep_template(3, (BOTH,))
    assert not told_later(template) & {*template.counts}
    ends = [op for op in template.ops if op.event is EventKind.LANE_DONE]
    assert ends

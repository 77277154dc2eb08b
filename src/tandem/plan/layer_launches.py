"""Stages that may be launched together: the end of a layer, and the beginning of the next."""

from itertools import pairwise

from tandem.plan.program import (
    EventKind,
    LaneShape,
    OpKind,
    Part,
    ProgramOp,
    ProgramTemplate,
    Queue,
)


def joined_stages(template: ProgramTemplate) -> frozenset[int]:
    """Ordinals of the POST stages on the accelerator which the next layer's PRE follows at once,
    over the same lanes and without a wait between, and of the last layer's.

    A cohort's pass of its own is left out: it comes while the others' queries, keys and values are
    still read, so that it cannot use their memory.
    """
    stages = [op for op in template.ops if op.queue is Queue.ACCEL]
    joined = {
        op.ordinal
        for op, following in pairwise(stages)
        if _is_end(op, template.lanes) and _begins_next(op, following)
    }
    ends = (op for op in stages if op.event is EventKind.LANE_DONE)
    return frozenset(joined | {op.ordinal for op in ends if _is_end(op, template.lanes)})


def _is_end(op: ProgramOp, lanes: tuple[LaneShape, ...]) -> bool:
    whole = (op.kind, op.part) == (OpKind.STAGE, Part.POST) and not op.waits
    return whole and all(lanes[lane].beside is None for lane in op.lanes)


def _begins_next(op: ProgramOp, following: ProgramOp) -> bool:
    begins = (following.kind, following.part) == (OpKind.STAGE, Part.PRE) and not following.waits
    return begins and following.layer == op.layer + 1 and following.lanes == op.lanes

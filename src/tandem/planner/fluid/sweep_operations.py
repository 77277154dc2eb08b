"""A sweep's operations, as virtual time takes them: its program, and the sampling that follows."""

from tandem.plan.program import LaneShape, ProgramOp, SignalRef
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.planner.fluid.reads_in_place import with_reads_in_place


def sweep_operations(
    num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers
) -> list[ProgramOp]:
    """A sweep's operations and its sampling's, in one order of ordinals per queue."""
    sweep = sweep_template(num_layers, lanes, layers)
    counts = dict(sweep.counts)
    finished = tuple(i for i, lane in enumerate(lanes) if lane.head and _ends(lane, num_layers))
    ops = list(sweep.ops)
    if not layers.streamed.layers:
        ops = with_reads_in_place(ops, layers.streamed.on_disk)
    for op in sampling_template(1).ops if finished else ():
        waits = tuple(SignalRef(w.queue, counts[w.queue] + w.ordinal) for w in op.waits)
        ordinal = counts.get(op.queue, 0) + op.ordinal
        ops.append(_moved(op, finished, ordinal, waits))
    return ops


def _ends(lane: LaneShape, num_layers: int) -> bool:
    """Whether it comes to the end of its rows' tokens."""
    return not lane.suspends or lane.cursor == num_layers - 1


def told_alike(ops: list[ProgramOp], lanes: tuple[LaneShape, ...]) -> list[ProgramOp]:
    """With all lanes of cohorts taken for one, the second: they are the same rows, or as many."""
    if not any(lane.after is not None or lane.beside is not None for lane in lanes):
        return ops
    place = [int(lane.suspends) for lane in lanes]
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}  # by lanes, of which there are few
    told: list[ProgramOp] = []
    for op in ops:
        lanes_of = shared.get(op.lanes)
        if lanes_of is None:
            lanes_of = shared[op.lanes] = tuple([place[lane] for lane in op.lanes])
        told.append(ProgramOp(*op[:3], lanes_of, *op[4:]))
    return told


def _moved(
    op: ProgramOp, lanes: tuple[int, ...], ordinal: int, waits: tuple[SignalRef, ...]
) -> ProgramOp:
    return ProgramOp(
        op.kind, op.queue, op.part, lanes, op.layer, ordinal, waits, op.reads, op.writes
    )

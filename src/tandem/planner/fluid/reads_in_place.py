"""Reads of layers on disk on the host alone, as operations in virtual time.

There an engine's layers are one native call, which waits for the reader's threads; its programs
have no reads (ADR 0015). The order is the same: a layer is computed where it was read to, and then
gives its slot to the circle's next one.
"""

from collections.abc import Sequence

from tandem.plan.disk_slots import slots_in_use
from tandem.plan.program import OpKind, Part, ProgramOp, Queue, SignalRef


def with_reads_in_place(ops: Sequence[ProgramOp], layers: Sequence[int]) -> list[ProgramOp]:
    """A sweep's operations with the reads of `layers`, which are on disk; ascending."""
    ahead, found, done = slots_in_use(len(layers)), list[ProgramOp](), 0
    for op in ops:
        if op.layer not in layers or op.kind is not OpKind.STAGE:
            found.append(op)
        elif op.part is Part.PRE:
            # of the first layers, the sweep before reads the weights
            read = SignalRef(Queue.DISK, layers.index(op.layer) + 1 - ahead)
            found.append(op._replace(waits=(*op.waits, read)))
        elif op.part is Part.POST:
            following = layers[(done + ahead) % len(layers)]
            done += 1
            used = (SignalRef(Queue.ACCEL, op.ordinal),)
            found += [op, _read(following, done, used)]
        else:
            found.append(op)
    return found


def _read(layer: int, ordinal: int, waits: tuple[SignalRef, ...]) -> ProgramOp:
    return ProgramOp(OpKind.READ, Queue.DISK, Part.NONE, (), layer, ordinal, waits, (), ())

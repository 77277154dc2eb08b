"""Small hand-made programs for the ledgers of the paced emulator."""

from collections.abc import Callable

import numpy as np

from tandem.plan.binding import LaneBinding
from tandem.plan.program import (
    LaneShape,
    LaneSlot,
    OpKind,
    Part,
    ProgramOp,
    ProgramTemplate,
    Queue,
    SignalRef,
    StepProgram,
)
from tandem.runtime.paced.program import PacedProgram

_NONE = np.zeros(0, dtype=np.int32)
_NO_LONGS = np.zeros(0, dtype=np.int64)
NO_ROWS = LaneBinding(_NONE, _NO_LONGS, _NO_LONGS, _NONE, {}, {}, _NO_LONGS)

Wait = tuple[Queue, int]


def op(
    queue: Queue,
    ordinal: int,
    *waits: Wait,
    kind: OpKind = OpKind.STAGE,
    joins: int | None = None,
    raises: int | None = None,
    lanes: tuple[int, ...] = (0,),
) -> ProgramOp:
    """An operation of which only its place and its dependencies matter."""
    refs = tuple(SignalRef(*wait) for wait in waits)
    return ProgramOp(
        kind, queue, Part.NONE, lanes, 0, ordinal, refs, (), (), joins=joins, raises=raises
    )


def program(
    ops: list[ProgramOp],
    base: dict[Queue, int],
    cost_s: Callable[[ProgramOp], float],
    *,
    step: int = 0,
    submitted_s: float = 0.0,
    launch_s: float = 0.0,
    shapes: tuple[LaneShape, ...] = (LaneShape(),),
    cohort: int = 0,
    signal: int = 0,
    max_join_wait_s: float | None = None,
) -> PacedProgram:
    """A program in flight over those operations."""
    counts: dict[Queue, int] = {}
    for each in ops:
        counts[each.queue] = counts.get(each.queue, 0) + 1
    template = ProgramTemplate("hand-made", shapes, tuple(ops), tuple(counts.items()))
    slots = tuple(LaneSlot(NO_ROWS, cohort, signal) for _ in shapes)
    step_program = StepProgram(step, template, slots, max_join_wait_s=max_join_wait_s)

    # Costs differ per operation here, while real ones are alike in all layers.
    class Uncached(PacedProgram):
        def duration_s(self, op: ProgramOp) -> float:
            return cost_s(op) if self.active(op) else 0.0

    return Uncached(step_program, base, submitted_s, launch_s, lambda op, _: cost_s(op))

"""An operation under way."""

from dataclasses import dataclass

from tandem.plan.program import ProgramOp
from tandem.runtime.program_context import ProgramContext


@dataclass(frozen=True, slots=True)
class Running:
    """An operation being executed: what `run` and the buffers need to know of it."""

    op: ProgramOp
    context: ProgramContext

    def __str__(self) -> str:
        step, op = self.context.program.step_id, self.op
        return f"step {step}: {op.kind} {op.part} layer {op.layer}"

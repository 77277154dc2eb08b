"""An operation under way."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tandem.plan.program import ProgramOp, Queue
from tandem.runtime.program_context import ProgramContext


@dataclass(frozen=True, slots=True)
class Running:
    """An operation being executed: what `run` and the buffers need to know of it.

    Attributes:
        told_later: its end may be told with that of a later one (`plan.told_later`).
    """

    op: ProgramOp
    context: ProgramContext
    told_later: bool = False

    def __str__(self) -> str:
        step, op = self.context.program.step_id, self.op
        return f"step {step}: {op.kind} {op.part} layer {op.layer}"

    @property
    def value(self) -> int:
        """What its queue's timeline reads when it has completed."""
        return self.context.base[self.op.queue] + self.op.ordinal

    def waits(self) -> Iterator[tuple[Queue, int]]:
        """Timelines, and what they must have reached before it may start."""
        for wait in self.op.waits:
            yield wait.queue, self.context.base[wait.queue] + wait.ordinal


class Completed(NamedTuple):
    """An operation that has ended.

    Attributes:
        begun_s: it did not begin before, in seconds of `time.perf_counter`; end_s likewise.
    """

    running: Running
    begun_s: float
    end_s: float

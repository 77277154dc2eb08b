"""Operations under way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.plan.op_runs import OpRun
from tandem.plan.program import OpKind, ProgramOp, Queue
from tandem.runtime.program_context import ProgramContext


class Running(NamedTuple):
    """An operation being executed: what `run` and the buffers need to know of it."""

    op: ProgramOp
    context: ProgramContext

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


@dataclass(slots=True, eq=False)
class Launch:
    """A run of operations being executed by one call.

    Attributes:
        value: what its queue's timeline reads when all have completed.
        waits: timelines, and what they must have reached before the first may start.
        told_after: the same, and what else must be known to have ended before its end is told: of a
            graph that the host does a part of, that part, which may have failed.
    """

    run: OpRun
    context: ProgramContext
    value: int = field(init=False)
    waits: tuple[tuple[Queue, int], ...] = field(init=False)
    told_after: tuple[tuple[Queue, int], ...] = field(init=False)

    def __post_init__(self) -> None:
        base, last = self.context.base, self.run.last
        self.value = base[last.queue] + last.ordinal
        self.waits = tuple((wait.queue, base[wait.queue] + wait.ordinal) for wait in self.run.waits)
        self.told_after = self.waits
        if last.kind is OpKind.SWEEP:
            on_host = dict(self.context.program.template.counts).get(Queue.CPU, 0)
            self.told_after += ((Queue.CPU, base[Queue.CPU] + on_host),) * bool(on_host)

    @property
    def queue(self) -> Queue:
        """Where all of them run."""
        return self.run.first.queue

    @property
    def first(self) -> Running:
        """The operation that waits, and may join."""
        return Running(self.run.first, self.context)

    @property
    def last(self) -> Running:
        """The operation that others wait for, or that means something."""
        return Running(self.run.last, self.context)


class Completed(NamedTuple):
    """A run that has ended.

    Attributes:
        spans_s: of each part: it did not begin before, and when it ended, in seconds of
            `time.perf_counter`.
    """

    launch: Launch
    spans_s: Sequence[tuple[float, float]]

"""One decode cycle of a plan: when each operation of a steady sweep runs, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.plan.program import ProgramOp, Queue
from tandem.planner.candidate import Candidate
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.queues import ACCEL, Span
from tandem.planner.fluid.schedule import Schedules
from tandem.planner.fluid.virtual_time import steady_sweep
from tandem.planner.footprint import Footprint
from tandem.planner.question import Question
from tandem.planner.sweep_load import decode_load
from tandem.planner.sweeps import Sweeps


class OpSpan(NamedTuple):
    """An operation, and when it runs from the cycle's begin on; parts may lie outside the cycle."""

    op: ProgramOp
    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """From one sweep's end on the accelerator to the next one's, all rows decoding.

    Attributes:
        spans: of all queues, what runs within it at least partly, by begin.
    """

    period_s: float
    spans: tuple[OpSpan, ...]

    def on(self, queue: Queue) -> list[OpSpan]:
        """What runs on a queue, by begin."""
        return [span for span in self.spans if span.op.queue is queue]

    def busy(self, queue: Queue, begin_s: float, end_s: float) -> float:
        """Share of that time in which the queue runs something."""
        spans = self.on(queue)
        return sum(overlap_s(span, begin_s, end_s) for span in spans) / (end_s - begin_s)


def overlap_s(span: OpSpan, begin_s: float, end_s: float) -> float:
    """How long the span lasts within those bounds."""
    return max(0.0, min(span.end_s, end_s) - max(span.begin_s, begin_s))


def decode_cycle(question: Question, candidate: Candidate) -> Cycle:
    """The cycle of a candidate for that question; of a cohort with passes of its own, the sweep
    with which it enters, and leaves most layers behind.
    """
    footprint = Footprint(question)
    sweeps = Sweeps(question, footprint, Schedules.of_model(question.model))
    load = decode_load(candidate, question.lengths)
    return steady_cycle(sweeps.each_operation(candidate.elsewhere, load), question)


def steady_cycle(sweeps: Sequence[PricedSweep], question: Question) -> Cycle:
    """The cycle of the last sweep but one.

    Args:
        sweeps: at least three, each operation a group. What the cycle begins and does not end is
            ended in the last one.
    """
    spans: list[Span] = []
    dram_bytes_per_s = question.hardware.host.pool_bytes_per_s
    steady_sweep(sweeps, dram_bytes_per_s, spans.append, both_ways=question.link_both_ways)
    ends = [0.0] * len(sweeps)
    for span in spans:
        if span.queue == ACCEL:
            ends[_number(span)] = span.end_s
    begin_s, end_s = ends[-3:-1]
    found = [
        OpSpan(_operation(span), span.start_s - begin_s, span.end_s - begin_s)
        for span in spans
        if span.start_s < end_s and span.end_s > begin_s
    ]
    return Cycle(end_s - begin_s, tuple(sorted(found, key=lambda span: span.begin_s)))


def _number(span: Span) -> int:
    number = span.submission.label
    assert isinstance(number, int)
    return number


def _operation(span: Span) -> ProgramOp:
    schedule = span.submission.schedule
    ((index, _),) = schedule.groups[span.group].ops
    return schedule.ops[index]

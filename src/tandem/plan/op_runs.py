"""A template's operations in the runs that one call executes, and whose end may be told later."""

from collections import defaultdict
from collections.abc import Set
from typing import NamedTuple

from tandem.plan.op_causes import op_causes
from tandem.plan.program import OpKind, Part, ProgramOp, ProgramTemplate, Queue, SignalRef

_RUN_TOGETHER = (Queue.ACCEL, Queue.CPU)
"""Whose operations follow each other closely."""
_WITHIN_A_PROGRAM = (Queue.ACCEL, Queue.CPU, Queue.D2H)
"""Of whose operations a later program waits for the last alone."""
_BY_THREADS = (Queue.CPU, Queue.DISK)
"""Whose operations wait in host memory, where somebody has to tell of a device's."""
_ATTENTION = frozenset({OpKind.APPEND, OpKind.ATTEND})
_MATHS = frozenset({OpKind.STAGE, OpKind.MERGE, OpKind.SAMPLE})
_NOTHING = -(1 << 62)


class OpRun(NamedTuple):
    """Operations that follow each other on a queue and are executed by one call, with one end.

    Attributes:
        ops: all of them, in order. Only the last is awaited by other queues, or means something to
            the scheduler or a cohort; only the first waits, or joins.
        parts: the same, cut where what steps are priced by changes: each part has a time of its
            own.
        waits: what must be reached before the first, beyond what its queue has waited for before.
        told_later: its end may be told with that of a later run: no thread waits to be told of it.
    """

    ops: tuple[ProgramOp, ...]
    parts: tuple[tuple[ProgramOp, ...], ...]
    waits: tuple[SignalRef, ...]
    told_later: bool

    @property
    def first(self) -> ProgramOp:
        """What begins it."""
        return self.ops[0]

    @property
    def last(self) -> ProgramOp:
        """What ends it."""
        return self.ops[-1]


def op_runs(
    template: ProgramTemplate, raised: Set[Queue] = frozenset(), *, single: bool = False
) -> tuple[OpRun, ...]:
    """All operations, in an order in which runs come behind what they wait for.

    Args:
        raised: queues whose ends are told in host memory by the device itself.
        single: each operation is a run of its own.
    """
    awaited = {
        (wait.queue, wait.ordinal)
        for op in template.ops
        for wait in op.waits
        if wait.queue is not op.queue
    }
    runs = list[tuple[list[ProgramOp], tuple[SignalRef, ...]]]()
    latest = dict[Queue, list[ProgramOp]]()
    known: dict[Queue, dict[Queue, int]] = defaultdict(dict)  # what each has waited for
    for op in template.ops:
        waits = _new_waits(op, known[op.queue])
        run = latest.get(op.queue)
        if run is None or single or waits or not _may_follow(run[-1], op, awaited):
            run = latest[op.queue] = []
            runs.append((run, waits))
        run.append(op)
    told = _told(template, raised)
    return tuple(
        OpRun(tuple(run), _parts(run), waits, (run[-1].queue, run[-1].ordinal) not in told)
        for run, waits in runs
    )


def _new_waits(op: ProgramOp, known: dict[Queue, int]) -> tuple[SignalRef, ...]:
    waits = tuple(
        wait
        for wait in op.waits
        if wait.queue is not op.queue and wait.ordinal > known.get(wait.queue, _NOTHING)
    )
    known |= {wait.queue: wait.ordinal for wait in waits}
    return waits


def _may_follow(before: ProgramOp, op: ProgramOp, awaited: Set[tuple[Queue, int]]) -> bool:
    """Whether an operation may run at once with the one before it on its queue."""
    silent = _says_nothing(before) and (before.queue, before.ordinal) not in awaited
    if op.queue not in _RUN_TOGETHER or not silent or op.joins is not None:
        return False
    # the CPU's attention runs on native threads, its other work on the queue's
    return op.queue is Queue.ACCEL or _priced_by(before) == _priced_by(op)


def _told(template: ProgramTemplate, raised: Set[Queue]) -> set[tuple[Queue, int]]:
    """Operations of which somebody is told when they end: the last of every queue; those that mean
    something, with the last of each queue that they come from, since causes are told before
    effects; those that a later program may wait for, and a queue of the host.
    """
    told = {*template.counts}
    causes = op_causes(template)
    for op in template.ops:
        place = op.queue, op.ordinal
        if op.event is not None:
            told |= {each for each in causes[place].items() if each[0] is not op.queue}
        if not (_says_nothing(op) and _is_within_its_program(op)):
            told.add(place)
        if op.queue in _BY_THREADS:
            told |= {(wait.queue, wait.ordinal) for wait in op.waits if wait.queue not in raised}
    return told


def _is_within_its_program(op: ProgramOp) -> bool:
    return op.queue in _WITHIN_A_PROGRAM or (op.queue, op.part) == (Queue.H2D, Part.PARTIAL)


def _says_nothing(op: ProgramOp) -> bool:
    return op.event is None and op.raises is None and op.joins is None


def _parts(run: list[ProgramOp]) -> tuple[tuple[ProgramOp, ...], ...]:
    parts = list[list[ProgramOp]]()
    for op in run:
        if parts and _priced_by(parts[-1][-1]) == _priced_by(op):
            parts[-1].append(op)
        else:
            parts.append([op])
    return tuple(map(tuple, parts))


def _priced_by(op: ProgramOp) -> str:
    """Operations alike in this add up to one term of what steps are said to take."""
    if op.kind in _ATTENTION:
        return "attention"
    return "maths" if op.kind in _MATHS else op.kind

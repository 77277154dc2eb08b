"""Which thread launches which run, where to launch is not to wait for the end.

The thread of the accelerator's queue launches a layer's copies as well: behind the operation that
they copy from, or before the one that waits for them. No thread has to be woken for them.
"""

from collections.abc import Sequence

from tandem.plan.op_causes import op_causes
from tandem.plan.op_runs import OpRun
from tandem.plan.program import OpKind, Part, ProgramOp, ProgramTemplate, Queue

_DOWN = frozenset({Part.QKV, Part.TOKENS})
"""Copies to pinned memory, which wait for the accelerator alone."""


def by_own_threads(runs: Sequence[OpRun]) -> tuple[tuple[Queue, OpRun], ...]:
    """Every run by the thread of its queue."""
    return tuple((run.first.queue, run) for run in runs)


def by_one_thread(
    template: ProgramTemplate, runs: Sequence[OpRun]
) -> tuple[tuple[Queue, OpRun], ...]:
    """Each run with the queue whose thread launches it, in the order in which each thread does.

    What waits for the CPU comes no sooner than what waits for it: until then the thread launches
    what the accelerator can do beside the CPU.
    """
    causes = op_causes(template)
    ordered, later = list[tuple[Queue, OpRun]](), list[OpRun]()
    for run in runs:
        if _brings_up(run.first):
            later.append(run)
            continue
        thread = Queue.ACCEL if _brings_down(run.first) else run.first.queue
        if thread is Queue.ACCEL:
            needed = causes[run.first.queue, run.first.ordinal].get(Queue.H2D, 0)
            while later and later[0].last.ordinal <= needed:
                ordered.append((Queue.ACCEL, later.pop(0)))
        ordered.append((thread, run))
    return (*ordered, *((Queue.ACCEL, run) for run in later))


def _brings_down(op: ProgramOp) -> bool:
    return (op.kind, op.queue) == (OpKind.COPY, Queue.D2H) and op.part in _DOWN


def _brings_up(op: ProgramOp) -> bool:
    """A join is waited for by a thread of its own, within bounds."""
    copied = (op.kind, op.queue, op.part) == (OpKind.COPY, Queue.H2D, Part.PARTIAL)
    return copied and op.joins is None

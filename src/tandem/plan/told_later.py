"""Operations whose end nobody waits for, so that it may be told with that of a later one."""

from tandem.plan.program import ProgramOp, ProgramTemplate, Queue

_QUEUES = (Queue.ACCEL, Queue.CPU)
"""Whose operations follow each other closely. Of the others', a later program may wait for any."""


def told_later(template: ProgramTemplate) -> frozenset[tuple[Queue, int]]:
    """Queue and ordinal of operations that no operation of another queue waits for, that mean
    nothing to the scheduler and to no cohort, and that others of their queue follow.
    """
    awaited = {
        (wait.queue, wait.ordinal)
        for op in template.ops
        for wait in op.waits
        if wait.queue is not op.queue
    }
    last = {*template.counts}
    return frozenset(
        place
        for op in template.ops
        if _says_nothing(op) and (place := (op.queue, op.ordinal)) not in awaited | last
    )


def _says_nothing(op: ProgramOp) -> bool:
    return op.queue in _QUEUES and op.event is None and op.raises is None and op.joins is None

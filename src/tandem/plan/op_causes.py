"""What has ended before an operation of a template can begin."""

from collections.abc import Mapping

from tandem.plan.program import ProgramTemplate, Queue

Place = tuple[Queue, int]
"""An operation: its queue and ordinal."""


def op_causes(template: ProgramTemplate) -> Mapping[Place, Mapping[Queue, int]]:
    """By operation: of each queue, the last that it waits for, directly or by others that it waits
    for; of its own queue, the one before it.
    """
    causes = dict[Place, dict[Queue, int]]()
    for op in template.ops:
        known = dict(causes.get((op.queue, op.ordinal - 1), {}))
        for wait in op.waits:
            behind = {**causes.get((wait.queue, wait.ordinal), {}), wait.queue: wait.ordinal}
            for queue, ordinal in behind.items():
                known[queue] = max(ordinal, known.get(queue, ordinal))
        causes[op.queue, op.ordinal] = known | {op.queue: op.ordinal - 1}
    return causes

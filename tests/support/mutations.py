"""Break program templates on purpose: forget a wait or a copy, use the wrong queue."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tandem.plan.program import OpKind, Part, ProgramOp, ProgramTemplate, Queue, SignalRef

Selector = Callable[[ProgramOp], bool]
Mutation = Callable[[ProgramTemplate], ProgramTemplate]


@dataclass(frozen=True, slots=True)
class _Labelled:
    """An operation under its place in the original template."""

    label: SignalRef
    op: ProgramOp


def is_op(
    kind: OpKind, part: Part = Part.NONE, queue: Queue | None = None, layer: int | None = None
) -> Selector:
    """Selects operations of one kind."""

    def select(op: ProgramOp) -> bool:
        fits = op.kind is kind and op.part is part
        return fits and queue in (None, op.queue) and layer in (None, op.layer)

    return select


def drop_waits(select: Selector, on: Queue | None = None) -> Mutation:
    """The selected operations start without waiting for other queues, or for that one."""

    def edit(op: ProgramOp) -> ProgramOp:
        if not select(op):
            return op
        return op._replace(waits=tuple(w for w in op.waits if on is not None and w.queue is not on))

    return lambda template: _edit(template, edit)


def drop_joins(select: Selector) -> Mutation:
    """The selected operations do not wait for the cohort that they join."""
    return lambda template: _edit(
        template, lambda op: op._replace(joins=None) if select(op) else op
    )


def drop(select: Selector) -> Mutation:
    """The selected operations are missing; who waited for them does not."""
    return lambda template: _edit(template, lambda op: None if select(op) else op)


def move(select: Selector, queue: Queue) -> Mutation:
    """The selected operations run on another queue."""
    return lambda template: _edit(
        template, lambda op: op._replace(queue=queue) if select(op) else op
    )


def swap_queues(first: Selector, second: Selector) -> Mutation:
    """Two kinds of operations run on each other's queues."""

    def mutate(template: ProgramTemplate) -> ProgramTemplate:
        one = next((op.queue for op in template.ops if first(op)), None)
        other = next((op.queue for op in template.ops if second(op)), None)
        if one is None or other is None:
            return template

        def edit(op: ProgramOp) -> ProgramOp:
            if first(op):
                return op._replace(queue=other)
            return op._replace(queue=one) if second(op) else op

        return _edit(template, edit)

    return mutate


def _edit(
    template: ProgramTemplate, edit: Callable[[ProgramOp], ProgramOp | None]
) -> ProgramTemplate:
    kept: list[_Labelled] = []
    for op in template.ops:
        edited = edit(op)
        if edited is not None:
            kept.append(_Labelled(SignalRef(op.queue, op.ordinal), edited))
    return _renumber(template, kept)


def _renumber(template: ProgramTemplate, kept: Sequence[_Labelled]) -> ProgramTemplate:
    """Count ordinals anew and lead waits to where their operations went."""
    counts: dict[Queue, int] = defaultdict(int)
    places: dict[SignalRef, SignalRef] = {}
    ops: list[ProgramOp] = []
    for entry in kept:
        counts[entry.op.queue] += 1
        place = SignalRef(entry.op.queue, counts[entry.op.queue])
        places[entry.label] = place
        waits = tuple(
            wait if wait.ordinal <= 0 else places[wait]
            for wait in entry.op.waits
            if wait.ordinal <= 0 or wait in places
        )
        ops.append(entry.op._replace(ordinal=place.ordinal, waits=waits))
    return replace(template, ops=tuple(ops), counts=tuple(counts.items()))

"""A template's operations in the portions in which the host executes them."""

from dataclasses import dataclass

from tandem.plan.program import OpKind, Part, ProgramOp, ProgramTemplate

_LAYER = (
    (OpKind.STAGE, Part.PRE),
    (OpKind.APPEND, Part.NONE),
    (OpKind.ATTEND, Part.NONE),
    (OpKind.MERGE, Part.NONE),
    (OpKind.STAGE, Part.POST),
)


@dataclass(frozen=True, slots=True)
class OpGroup:
    """Operations that follow each other.

    Attributes:
        num_layers: whole layers of one lane in one tier that they are, from the first on; 0: the
            group is a single operation.
    """

    ops: tuple[ProgramOp, ...]
    num_layers: int = 0


def group_layers(template: ProgramTemplate) -> tuple[OpGroup, ...]:
    """The operations in order; layers of one lane in one tier that follow each other as a group."""
    ops, groups, at = template.ops, list[OpGroup](), 0
    while at < len(ops):
        layers = _count_layers(ops, at)
        end = at + max(1, layers * len(_LAYER))
        groups.append(OpGroup(ops[at:end], layers))
        at = end
    return tuple(groups)


def _count_layers(ops: tuple[ProgramOp, ...], start: int) -> int:
    count, lanes = 0, ops[start].lanes
    while _is_layer(ops[start : start + len(_LAYER)], count, lanes):
        start += len(_LAYER)
        count += 1
    return count


def _is_layer(ops: tuple[ProgramOp, ...], layer: int, lanes: tuple[int, ...]) -> bool:
    return (
        tuple((op.kind, op.part) for op in ops) == _LAYER
        and len(lanes) == 1
        and all(op.lanes == lanes and op.layer == layer and not op.waits for op in ops)
    )

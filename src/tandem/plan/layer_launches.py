"""Stages that may be launched as one: the end of a layer, the beginning of the next, or both."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, ProgramTemplate, Queue
from tandem.plan.template_builder import WEIGHTS
from tandem.plan.weights import MLPS_APART, ON_CPU, Home


class LayerPart(NamedTuple):
    """What is launched at once: the POST of a layer, the PRE of one, or both.

    Attributes:
        ends: the layer whose POST it is; None: it is a PRE alone.
        begins: the layer whose PRE it is, the next one; None: it is a POST alone.
    """

    ends: int | None
    begins: int | None


def resident_parts(homes: Mapping[int, Home], num_layers: int) -> tuple[LayerPart, ...]:
    """Between two layers' attention, whatever needs no weights but those that stay on the
    accelerator, in order.

    The first PRE there is left out: positions are rotated in it.

    Args:
        homes: by layer; others are resident.
    """
    found = [homes.get(layer, "resident") for layer in range(num_layers)]
    parts = list[LayerPart]()
    rotated = False
    for layer, home in enumerate(found):
        rotated = rotated or home not in ON_CPU
        following = found[layer + 1] if layer + 1 < num_layers else None
        # of layers whose MLP is apart the rest is resident
        begins = layer + 1 if rotated and following in ("resident", *MLPS_APART) else None
        ends = layer if home == "resident" else None
        if ends is not None or begins is not None:
            parts.append(LayerPart(ends, begins))
    return tuple(parts)


def can_record(parts: Sequence[LayerPart]) -> bool:
    """Whether there is a layer from whose PRE the shapes of what lies between parts are known."""
    return any(part.begins is not None or part.ends == 0 for part in parts)


def layer_parts(template: ProgramTemplate) -> dict[int, LayerPart]:
    """By the ordinal of its first stage on the accelerator: a POST with the next layer's PRE, where
    that follows at once over the same lanes; and those that stand alone. Only stages that wait for
    nothing and read no weights that come and go.

    A cohort's pass of its own is left out: it comes while the others' queries, keys and values are
    still read, so that it cannot use their memory.
    """
    stages = [op for op in template.ops if op.queue is Queue.ACCEL]
    parts, begun = dict[int, LayerPart](), 0
    for op, following in pairwise([*stages, None]):
        assert op is not None
        if _stays(op, Part.POST, template.lanes):
            begins = following is not None and _begins_next(op, following, template.lanes)
            parts[op.ordinal] = LayerPart(op.layer, op.layer + 1 if begins else None)
            begun = following.ordinal if begins and following is not None else begun
        elif _stays(op, Part.PRE, template.lanes) and op.ordinal != begun:
            parts[op.ordinal] = LayerPart(None, op.layer)
    return parts


def _stays(op: ProgramOp, part: Part, lanes: tuple[LaneShape, ...]) -> bool:
    """Whether an operation is such a stage, of lanes in the sweep."""
    alone = (op.kind, op.part) == (OpKind.STAGE, part) and not op.waits
    if not alone or any(ref.name.startswith(WEIGHTS) for ref in op.reads):
        return False
    return all(lanes[lane].beside is None for lane in op.lanes)


def _begins_next(op: ProgramOp, following: ProgramOp, lanes: tuple[LaneShape, ...]) -> bool:
    follows = following.layer == op.layer + 1 and following.lanes == op.lanes
    return follows and _stays(following, Part.PRE, lanes)

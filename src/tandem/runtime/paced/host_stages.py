"""Which operations of a layer a stage on the CPU's queue is."""

from collections.abc import Mapping

from tandem.plan.program import Part
from tandem.spec.operations import Operation, Stage, default_stages, split_post


def host_stages(operations: tuple[Operation, ...]) -> Mapping[Part, Stage]:
    """By the part of a program; of `COLUMNS`, those of the whole MLP."""
    pre, _, post = default_stages(operations)
    cut = split_post(operations)
    return {
        Part.PRE: pre,
        Part.POST: post,
        Part.OUTPUT: cut.output,
        Part.MLP: cut.mlp,
        Part.COLUMNS: cut.mlp,
    }

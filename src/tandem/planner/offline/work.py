"""Which operations a batch has in a layer, without building a program."""

from collections.abc import Iterator
from functools import cache
from typing import Literal

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.spec.tier import Tier

LOAD = (OpKind.LOAD, Queue.WEIGHTS, Part.NONE)
LOAD_MLP = (OpKind.LOAD, Queue.WEIGHTS, Part.MLP)
LOAD_COLUMNS = (OpKind.LOAD, Queue.WEIGHTS, Part.COLUMNS)
LOAD_CPU_COLUMNS = (OpKind.LOAD, Queue.WEIGHTS, Part.CPU_COLUMNS)
READ = (OpKind.READ, Queue.DISK, Part.NONE)
OpClass = tuple[OpKind, Queue, Part]
_STAGE, _COPY = OpKind.STAGE, OpKind.COPY
CACHE = (_COPY, Queue.H2D, Part.CACHE)
PREFIX = (_COPY, Queue.H2D, Part.PREFIX)
ENDS: tuple[OpClass, ...] = (
    (_STAGE, Queue.ACCEL, Part.EMBED),
    (_STAGE, Queue.ACCEL, Part.HEAD),
    (OpKind.SAMPLE, Queue.ACCEL, Part.NONE),
    (_COPY, Queue.D2H, Part.TOKENS),
)
"""Of a batch in a pass."""
CPU_CHAIN: tuple[OpClass, ...] = (
    (_COPY, Queue.D2H, Part.QKV),
    (OpKind.APPEND, Queue.CPU, Part.NONE),
    (OpKind.ATTEND, Queue.CPU, Part.NONE),
    (_COPY, Queue.H2D, Part.PARTIAL),
)
"""Attention on the CPU, one after the other."""


CPU_MLP = (_STAGE, Queue.CPU, Part.MLP)
MLP_CHAIN: tuple[OpClass, ...] = (
    (_STAGE, Queue.ACCEL, Part.OUTPUT),
    (_COPY, Queue.D2H, Part.RESIDUAL),
    CPU_MLP,
    (_COPY, Queue.H2D, Part.RESIDUAL),
    (_STAGE, Queue.ACCEL, Part.RESIDUAL),
)
"""The end of a layer whose MLP the CPU computes, one after the other."""


CPU_COLUMNS = (_STAGE, Queue.CPU, Part.COLUMNS)
COLUMNS_CHAIN: tuple[OpClass, ...] = tuple(CPU_COLUMNS if op is CPU_MLP else op for op in MLP_CHAIN)
"""Likewise, of columns; the accelerator computes the others meanwhile."""
OWN_COLUMNS = (_STAGE, Queue.ACCEL, Part.COLUMNS)
CUT_CHAIN: tuple[OpClass, ...] = (
    (_STAGE, Queue.CPU, Part.PRE),
    (OpKind.MERGE, Queue.CPU, Part.NONE),
    (_STAGE, Queue.CPU, Part.OUTPUT),
    CPU_COLUMNS,
)
"""Of a divided layer whose attention's maps are the CPU's, what it computes but for attention, one
after the other; the accelerator's columns, and their way, are made meanwhile.
"""
CPU_LAYER: tuple[OpClass, ...] = (
    (_STAGE, Queue.CPU, Part.PRE),
    (OpKind.MERGE, Queue.CPU, Part.NONE),
    (_STAGE, Queue.CPU, Part.POST),
)
"""A layer that the CPU computes, but for attention, one after the other."""
OnCpu = Literal["none", "columns", "cut", "mlp", "layer"]
"""What the CPU computes of a layer; `cut`: attention's maps, and columns of the MLP."""
ALL_ON_CPU: tuple[OnCpu, ...] = ("none", "columns", "cut", "mlp", "layer")


def by_layer(
    shape: BlockShape, sweep: SweepLayers, divided: tuple[int, ...] = ()
) -> tuple[OnCpu, ...]:
    """What the CPU computes of each layer.

    Args:
        divided: layers of whose MLPs it computes columns.
    """
    found: dict[int, OnCpu] = dict.fromkeys(sweep.mlp_on_cpu, "mlp")
    found |= dict.fromkeys(divided, "cut" if shape.attention_maps_on_cpu else "columns")
    found |= dict.fromkeys(sweep.on_cpu, "layer")
    return tuple(found.get(layer, "none") for layer in range(shape.num_layers))


def decode_work(shape: BlockShape, on_cpu: OnCpu = "none") -> Iterator[OpClass]:
    """Of a batch in a layer while it decodes; activations that cross the link between two layers,
    one of which is the CPU's, left out.
    """
    whole = on_cpu in ("layer", "cut")
    if whole:
        yield from CUT_CHAIN if on_cpu == "cut" else CPU_LAYER
        if shape.cpu:
            yield from CPU_CHAIN[1:3]
        if shape.attends:
            yield _COPY, Queue.H2D, Part.QKV
            yield _COPY, Queue.D2H, Part.PARTIAL
    else:
        yield _STAGE, Queue.ACCEL, Part.PRE
        if shape.cpu:
            yield from CPU_CHAIN
    if shape.streamed:
        yield CACHE
        yield _COPY, Queue.D2H, Part.CACHE
    if shape.recomputes:
        yield PREFIX
        yield _STAGE, Queue.ACCEL, Part.RECOMPUTE
    if shape.attends:
        yield OpKind.APPEND, Queue.ACCEL, Part.NONE
        yield OpKind.ATTEND, Queue.ACCEL, Part.NONE
    if on_cpu == "cut":
        yield OWN_COLUMNS
        yield from ((_COPY, queue, Part.RESIDUAL) for queue in (Queue.H2D, Queue.D2H))
    if whole:
        return
    yield OpKind.MERGE, Queue.ACCEL, Part.NONE
    if on_cpu == "mlp":
        yield from MLP_CHAIN
    elif on_cpu == "columns":
        yield from COLUMNS_CHAIN
        yield OWN_COLUMNS
    else:
        yield _STAGE, Queue.ACCEL, Part.POST


def prefill_work(shape: BlockShape) -> Iterator[OpClass]:
    """Of a batch's prompts in a layer; the activations' way, which some layers lack, left out."""
    yield _STAGE, Queue.ACCEL, Part.PRE
    yield OpKind.APPEND, Queue.ACCEL, Part.NONE
    yield OpKind.ATTEND, Queue.ACCEL, Part.NONE
    if shape.recomputes:
        yield _COPY, Queue.D2H, Part.PREFIX
    if shape.streamed or shape.cpu:
        yield _COPY, Queue.D2H, Part.CACHE
    yield _STAGE, Queue.ACCEL, Part.POST


@cache
def operation(found: OpClass, layer: int) -> ProgramOp:
    """One of that kind, for its price."""
    kind, queue, part = found
    tier = Tier.HOST if queue is Queue.CPU else Tier.DEVICE
    return ProgramOp(kind, queue, part, (0,), layer, 1, (), (), (), tier)

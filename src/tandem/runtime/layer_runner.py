"""Whole layers as one native call each, where a lane's keys all lie in host memory.

Import this module only if `native.available()`.
"""

from tandem.kernels import _native
from tandem.kernels.compiled_kernels import SplitBatch
from tandem.models.layer_state import LayerState
from tandem.models.native_stages import NativeStages
from tandem.plan.program import OpKind, Part, ProgramOp, ProgramTemplate
from tandem.plan.templates import STATE
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.kv_store import KVStore
from tandem.runtime.program_context import ProgramContext
from tandem.spec.tier import Tier

OpGroup = tuple[ProgramOp, ...]

_LAYER = (
    (OpKind.STAGE, Part.PRE),
    (OpKind.APPEND, Part.NONE),
    (OpKind.ATTEND, Part.NONE),
    (OpKind.MERGE, Part.NONE),
    (OpKind.STAGE, Part.POST),
)


def group_layers(template: ProgramTemplate) -> tuple[OpGroup, ...]:
    """The operations in order; those of one layer of one lane in one tier as a group."""
    ops, groups, at = template.ops, list[OpGroup](), 0
    while at < len(ops):
        group = ops[at : at + len(_LAYER)]
        if not _is_layer(group):
            group = ops[at : at + 1]
        groups.append(group)
        at += len(group)
    return tuple(groups)


def _is_layer(ops: OpGroup) -> bool:
    lanes, layer = ops[0].lanes, ops[0].layer
    return (
        tuple((op.kind, op.part) for op in ops) == _LAYER
        and len(lanes) == 1
        and all(op.lanes == lanes and op.layer == layer and not op.waits for op in ops)
    )


class LayerRunner:
    """Executes groups of `group_layers` on the device tier's pages, which lie in host memory."""

    def __init__(self, stages: NativeStages, kv: KVStore, buffers: BufferSpace) -> None:
        self._stages = stages
        self._kv = kv
        self._buffers = buffers

    def can_run(self, group: OpGroup, context: ProgramContext) -> bool:
        """Whether the group is a layer, and all of its lane's tokens append and attend here."""
        if len(group) == 1:
            return False
        tier = context.lanes[group[0].lanes[0]].tiers[Tier.DEVICE]
        planned = None if tier.plans is None else tier.plans.of(group[0].layer)
        return (
            isinstance(planned, SplitBatch)
            and planned.decode is not None
            and planned.prefill is None
            and tier.slots is not None
            and tier.attend is None
            and tier.append is None
        )

    def run(self, group: OpGroup, context: ProgramContext) -> None:
        """From the layer's input to its output, in place."""
        queue, layer = group[0].queue, group[0].layer
        lane = context.lanes[group[0].lanes[0]]
        state = self._buffers.get((STATE, lane.key), queue)
        assert isinstance(state, LayerState)
        tier = lane.tiers[Tier.DEVICE]
        assert tier.plans is not None
        planned = tier.plans.of(layer)
        assert isinstance(planned, SplitBatch)
        assert planned.decode is not None
        plan = planned.decode.plan
        assert isinstance(plan, _native.AttentionPlan)
        assert tier.slots is not None
        pages = self._kv.layer(Tier.DEVICE, layer, queue)
        self._stages.run_layer(layer, state, pages, tier.slots, plan)

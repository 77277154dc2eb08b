"""All layers as one native call, where a lane's keys all lie in host memory.

Import this module only if `native.available()`.
"""

from collections.abc import Mapping

from tandem.kernels.compiled_kernels import SplitBatch
from tandem.kernels.tier_kernels import PlannedAttention
from tandem.models.layer_state import LayerState
from tandem.models.native_stages import NativeStages
from tandem.plan.template_builder import STATE
from tandem.runtime.arena import Arena
from tandem.runtime.buffers import BufferSpace
from tandem.runtime.kv_store import KVStore
from tandem.runtime.op_groups import OpGroup
from tandem.runtime.program_context import ProgramContext
from tandem.spec.tier import Tier


class LayerRunner:
    """Executes groups of whole layers on the device tier's pages, which lie in host memory.

    What a call takes beside the lane's state is charged to the arena, once for all layers: the
    compiled stages keep it for the next call.
    """

    def __init__(
        self, stages: NativeStages, kv: KVStore, buffers: BufferSpace, arena: Arena
    ) -> None:
        self._stages = stages
        self._kv = kv
        self._buffers = buffers
        self._arena = arena

    def can_run(self, group: OpGroup, context: ProgramContext) -> bool:
        """Whether the group is all layers, and all of its lane's tokens append and attend here."""
        if group.num_layers != self._stages.num_layers:
            return False
        tier = context.lanes[group.ops[0].lanes[0]].tiers[Tier.DEVICE]
        return (
            tier.plans is not None
            and isinstance(tier.plans.of(0), SplitBatch)
            and tier.slots is not None
            and tier.attend is None
            and tier.append is None
        )

    def run(self, group: OpGroup, context: ProgramContext) -> None:
        """From the first layer's input to the last one's output, in place.

        Raises:
            ArenaOverflowError: the stages' scratch does not fit beside what lies there.
        """
        queue = group.ops[0].queue
        lane = context.lanes[group.ops[0].lanes[0]]
        state = self._buffers.get((STATE, lane.key), queue)
        assert isinstance(state, LayerState)
        tier = lane.tiers[Tier.DEVICE]
        assert tier.plans is not None
        assert tier.slots is not None
        stages = self._stages
        scratch = lane.num_tokens * stages.scratch_token_bytes + stages.scratch_bytes
        self._arena.charge(queue, scratch)
        pages = self._kv.all_layers(Tier.DEVICE, queue)
        self._stages.run_layers(state, pages, tier.slots, _split(tier.plans.by_window))
        self._arena.charge(queue, 0)


def _split(plans: Mapping[int, PlannedAttention]) -> dict[int, SplitBatch]:
    made: dict[int, SplitBatch] = {}
    for window, plan in plans.items():
        assert isinstance(plan, SplitBatch)
        made[window] = plan
    return made

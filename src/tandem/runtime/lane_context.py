"""A lane's arrays as tensors where its operations need them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from tandem.kernels.tier_kernels import TierKernels
from tandem.kernels.upload import upload
from tandem.plan.binding import IntArray, LaneBinding
from tandem.plan.program import LaneSlot
from tandem.runtime.layer_plans import LayerPlans, Selection, selection_of
from tandem.runtime.passing_context import PassingContext
from tandem.runtime.staging import LaneStaging, StagingShape
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.runtime.decode_inputs import DecodeArrays
    from tandem.runtime.hybrid_inputs import HybridArrays


@dataclass(frozen=True, slots=True)
class TierContext:
    """One tier's share of a lane. `attend` and `append` select the lane's tokens (None: all).

    Attributes:
        attend: int64 [t] on the accelerator. append: int64 [u] on the accelerator.
        slots: int64 [u] where the tier's pages are; planned_append: the same as the tier's kernels
            want it. plans: for queries already selected.
    """

    attend: Selection
    append: Selection
    slots: torch.Tensor | None
    planned_append: torch.Tensor | None
    plans: LayerPlans | None


@dataclass(frozen=True, slots=True)
class LaneContext:
    """Tensors of one lane in one step (for a cohort: in all sweeps of its token).

    Attributes:
        staging: of a lane with a part in the host tier.
        passing: of a lane with keys and values that pass.
        places: of a lane with keys in both tiers, where its kernels merge them in one launch: int32
            [2, tokens], of each token among those that attend on the device, and on the host; -1:
            it does not.
        decode: of a lane that is launched as a graph, the step's numbers, which its tensors, those
            of the graph, come to hold. hybrid: of one of which the host has a part.
    """

    slot: LaneSlot
    token_ids: torch.Tensor
    token_rows: torch.Tensor
    positions: torch.Tensor
    logits_index: torch.Tensor
    tiers: dict[Tier, TierContext]
    staging: LaneStaging | None
    passing: PassingContext | None = None
    places: torch.Tensor | None = None
    decode: "DecodeArrays | None" = None
    hybrid: "HybridArrays | None" = None

    @property
    def key(self) -> int:
        """Tells this lane's buffers from others'."""
        return self.slot.cohort_id

    @property
    def host_staging(self) -> LaneStaging:
        """Of a lane that has a part in the host tier."""
        assert self.staging is not None
        return self.staging

    @property
    def num_tokens(self) -> int:
        """Query tokens."""
        return self.token_ids.shape[0]


def make_context(
    slot: LaneSlot,
    device: torch.device,
    kernels: dict[Tier, TierKernels],
    windows: tuple[int, ...],
    staging: StagingShape,
    slot_kernels: TierKernels | None = None,
    *,
    merges: bool = False,
) -> LaneContext:
    """Move a lane's arrays to where they are read: selections to `device`, host batches to DRAM.

    Args:
        windows: of each layer of the model.
        slot_kernels: of KV that passes through the accelerator.
        merges: the device's kernels are `MergingKernels`.
    """
    binding, passing = slot.binding, None
    if slot.passing is not None:
        assert slot_kernels is not None, "a block's machine has kernels for what passes"
        passing = PassingContext.of(slot.passing, device, kernels, slot_kernels, windows)
    hosted = Tier.HOST in binding.attention or Tier.HOST in binding.append
    return LaneContext(
        slot=slot,
        token_ids=upload(binding.token_ids, device),
        token_rows=upload(binding.token_rows, device),
        positions=upload(binding.positions.astype(np.int64), device),
        logits_index=upload(binding.logits_index, device),
        tiers={
            tier: make_tier_context(binding, tier, device, kernels[tier], windows) for tier in Tier
        },
        staging=staging.allocate(binding) if hosted else None,
        passing=passing,
        places=upload(_places(binding), device) if merges and len(binding.attention) > 1 else None,
    )


def _places(binding: LaneBinding) -> IntArray:
    """Of `LaneContext.places`."""
    places = np.full((2, binding.num_tokens), -1, dtype=np.int32)
    for line, tier in enumerate((Tier.DEVICE, Tier.HOST)):
        attention = binding.attention[tier]
        attending = slice(None) if attention.token_index is None else attention.token_index
        places[line, attending] = np.arange(len(attention.positions))
    return places


def make_tier_context(
    binding: LaneBinding,
    tier: Tier,
    device: torch.device,
    kernels: TierKernels,
    windows: tuple[int, ...],
) -> TierContext:
    """One tier's share of a lane's arrays, where they are read.

    Args:
        windows: of each layer of the model.
    """
    home = device if tier is Tier.DEVICE else torch.device("cpu")
    attention, append = binding.attention.get(tier), binding.append.get(tier)
    plans = None if attention is None else LayerPlans.make(attention, kernels, windows)
    slots = None if append is None else upload(append.slots, home)
    return TierContext(
        attend=None if attention is None else selection_of(attention.token_index, device),
        append=None if append is None else selection_of(append.token_index, device),
        slots=slots,
        planned_append=None if slots is None else kernels.plan_append(slots),
        plans=plans,
    )

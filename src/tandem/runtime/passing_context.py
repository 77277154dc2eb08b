"""A lane's passing KV as tensors where its operations need them."""

from dataclasses import dataclass

import numpy as np
import torch

from tandem.kernels.tier_kernels import TierKernels
from tandem.kernels.upload import upload
from tandem.plan.binding import TierAttention
from tandem.plan.block_shape import MADE_AT_ONCE
from tandem.plan.passing import BlockRun, PassingKV, RecomputedPrefix
from tandem.runtime.layer_plans import LayerPlans, Selection, selection_of
from tandem.spec.tier import Tier

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class PrefixContext:
    """Of `RecomputedPrefix`, on the accelerator.

    Attributes:
        runs: (first, count) of entries in the host's store.
        planned_appends: of `MADE_AT_ONCE` tokens each.
        attend: the lane's tokens that attend to recomputed keys. plans: of them; None for prompts.
    """

    runs: tuple[tuple[int, int], ...]
    tokens: torch.Tensor
    positions: torch.Tensor
    planned_appends: tuple[torch.Tensor, ...]
    attend: Selection
    plans: LayerPlans | None


@dataclass(frozen=True, slots=True)
class PassingContext:
    """Of `PassingKV`.

    Attributes:
        attend, append: select the lane's tokens, on the accelerator (None: all).
        slots: int64 [t]; where tokens go in the slot.
        stored: in decoding, slots on the host; planned_store: as the host's kernels want them.
        runs: blocks of the slot that have their like on the host.
    """

    attend: Selection
    append: Selection
    slots: torch.Tensor
    planned_append: torch.Tensor
    plans: LayerPlans
    runs: tuple[BlockRun, ...]
    stored: torch.Tensor | None
    planned_store: torch.Tensor | None
    prefix: PrefixContext | None

    @staticmethod
    def of(
        passing: PassingKV,
        device: torch.device,
        kernels: dict[Tier, TierKernels],
        slot_kernels: TierKernels,
        windows: tuple[int, ...],
    ) -> "PassingContext":
        """Selections and plans on `device`, what the host's kernels read in its memory.

        Args:
            slot_kernels: of the slots' pages, which hold what the host's do.
        """
        there, host = slot_kernels, kernels[Tier.HOST]
        slots = upload(passing.append.slots, device)
        stored = None if passing.stored is None else upload(passing.stored.slots, _CPU)
        return PassingContext(
            attend=selection_of(passing.attention.token_index, device),
            append=selection_of(passing.append.token_index, device),
            slots=slots,
            planned_append=there.plan_append(slots),
            plans=LayerPlans.make(passing.attention, there, windows),
            runs=passing.runs,
            stored=stored,
            planned_store=None if stored is None else host.plan_append(stored),
            prefix=_prefix(passing.prefix, device, kernels[Tier.DEVICE], windows),
        )


def _prefix(
    prefix: RecomputedPrefix | None,
    device: torch.device,
    kernels: TierKernels,
    windows: tuple[int, ...],
) -> PrefixContext | None:
    if prefix is None:
        return None
    attention: TierAttention | None = prefix.attention
    return PrefixContext(
        runs=prefix.runs,
        tokens=upload(prefix.tokens, device),
        positions=upload(prefix.positions.astype(np.int64), device),
        planned_appends=tuple(
            map(kernels.plan_append, upload(prefix.slots, device).split(MADE_AT_ONCE))
        ),
        attend=None if attention is None else selection_of(attention.token_index, device),
        plans=None if attention is None else LayerPlans.make(attention, kernels, windows),
    )

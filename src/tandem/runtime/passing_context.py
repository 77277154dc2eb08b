"""A lane's passing KV as tensors where its operations need them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from tandem.kernels.tier_kernels import TierKernels
from tandem.plan.binding import IntArray, TierAttention
from tandem.plan.passing import PassingKV, RecomputedPrefix
from tandem.runtime.layer_plans import LayerPlans, Selection, selection_of, to_device
from tandem.spec.tier import Tier

_CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks of a slot that follow each other, and those of the host with the same tokens."""

    slot_block: int
    host_block: int
    count: int


@dataclass(frozen=True, slots=True)
class PrefixContext:
    """Of `RecomputedPrefix`: `entries` in host memory, all else on the accelerator.

    Attributes:
        attend: the lane's tokens that attend to recomputed keys. plans: of them; None for prompts.
    """

    entries: torch.Tensor
    tokens: torch.Tensor
    positions: torch.Tensor
    planned_append: torch.Tensor
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
        windows: tuple[int, ...],
    ) -> "PassingContext":
        """Selections and plans on `device`, what the host's kernels read in its memory."""
        there, host = kernels[Tier.DEVICE], kernels[Tier.HOST]
        slots = to_device(passing.append.slots, device)
        stored = None if passing.stored is None else to_device(passing.stored.slots, _CPU)
        return PassingContext(
            attend=selection_of(passing.attention.token_index, device),
            append=selection_of(passing.append.token_index, device),
            slots=slots,
            planned_append=there.plan_append(slots),
            plans=LayerPlans.make(passing.attention, there, windows),
            runs=_runs(passing.slot_blocks, passing.host_blocks),
            stored=stored,
            planned_store=None if stored is None else host.plan_append(stored),
            prefix=_prefix(passing.prefix, device, there, windows),
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
        entries=to_device(prefix.entries, _CPU),
        tokens=to_device(prefix.tokens, device),
        positions=to_device(prefix.positions.astype(np.int64), device),
        planned_append=kernels.plan_append(to_device(prefix.slots, device)),
        attend=None if attention is None else selection_of(attention.token_index, device),
        plans=None if attention is None else LayerPlans.make(attention, kernels, windows),
    )


def _runs(slot_blocks: IntArray, host_blocks: IntArray) -> tuple[BlockRun, ...]:
    """As few as have both kinds of blocks in a row."""
    if not len(slot_blocks):
        return ()
    follows = (np.diff(slot_blocks) == 1) & (np.diff(host_blocks) == 1)
    firsts: NDArray[np.int64] = np.flatnonzero(np.concatenate([[True], ~follows]))
    counts = np.diff(np.append(firsts, len(slot_blocks)))
    return tuple(
        BlockRun(int(slot_blocks[first]), int(host_blocks[first]), int(count))
        for first, count in zip(firsts, counts, strict=True)
    )

"""Host memory through which a lane's queries go to the CPU, and its attention comes back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from tandem.memory.scratch import PINNED_LANE_BYTES
from tandem.plan.binding import LaneBinding
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier

_ALIGNMENT = 64  # of a cache line, so that threads and copies of two parts share none


@dataclass(frozen=True, slots=True)
class LaneStaging:
    """One lane's part in the host tier; the same memory serves all layers of a step.

    That is safe because a layer's queries leave the accelerator only after the layer before has
    been merged. The CPU's work can therefore be submitted before its inputs are there.

    Attributes:
        query: [t, heads, head_dim]. key, value: [u, kv_heads, head_dim].
        out: [t, heads, head_dim] float32. lse: [t, heads] float32.
        pinned: a device copies from and to it by itself.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    lse: Tensor
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class StagingShape:
    """What of a model decides the size of staging memory; `dtype` is that of activations.

    Attributes:
        pinned: gives so many bytes that a device copies from and to at the link's full rate: uint8
            [size]; None: there is no such device. Lanes of more than `PINNED_LANE_BYTES`, which are
            prompts, do without: they come seldom, and pinned memory is never given back.
    """

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    pinned: Callable[[int], Tensor] | None = None

    @staticmethod
    def of(
        model: ModelSpec, dtype: torch.dtype, pinned: Callable[[int], Tensor] | None = None
    ) -> "StagingShape":
        """A model's."""
        return StagingShape(model.num_heads, model.num_kv_heads, model.head_dim, dtype, pinned)

    def allocate(self, binding: LaneBinding) -> LaneStaging:
        """Memory for the tokens of a lane that attend and append in the host tier."""
        attention, append = binding.attention.get(Tier.HOST), binding.append.get(Tier.HOST)
        attending = 0 if attention is None else len(attention.positions)
        appended = 0 if append is None else len(append.slots)
        entries = (appended, self.kv_heads, self.head_dim)
        queries = (attending, self.heads, self.head_dim)
        own, sums = self.dtype, torch.float32
        (query, key, value, out, lse), pinned = self._empty(
            ((queries, own), (entries, own), (entries, own), (queries, sums), (queries[:2], sums))
        )
        return LaneStaging(query, key, value, out, lse, pinned)

    def _empty(
        self, parts: Sequence[tuple[tuple[int, ...], torch.dtype]]
    ) -> tuple[list[Tensor], bool]:
        """Tensors of these shapes and types, and whether they are pinned: then in one block."""
        sizes = [prod(shape) * dtype.itemsize for shape, dtype in parts]
        starts, end = [0], 0
        for size in sizes:
            end = starts[-1] + -(-size // _ALIGNMENT) * _ALIGNMENT
            starts.append(end)
        if self.pinned is None or end > PINNED_LANE_BYTES:
            return [torch.empty(shape, dtype=dtype) for shape, dtype in parts], False
        block = self.pinned(end)
        tensors = [
            block[start : start + size].view(dtype).view(shape)
            for (shape, dtype), start, size in zip(parts, starts, sizes, strict=False)
        ]
        return tensors, True

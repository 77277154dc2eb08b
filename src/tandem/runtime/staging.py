"""Host memory through which a lane's queries go to the CPU, and its attention comes back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.plan.binding import LaneBinding
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class LaneStaging:
    """One lane's part in the host tier; the same memory serves all layers of a step.

    That is safe because a layer's queries leave the accelerator only after the layer before has
    been merged. The CPU's work can therefore be submitted before its inputs are there.

    Attributes:
        query: [t, heads, head_dim]. key, value: [u, kv_heads, head_dim].
        out: [t, heads, head_dim] float32. lse: [t, heads] float32.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    lse: Tensor


@dataclass(frozen=True, slots=True)
class StagingShape:
    """What of a model decides the size of staging memory; `dtype` is that of activations."""

    heads: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype

    @staticmethod
    def of(model: ModelSpec, dtype: torch.dtype) -> "StagingShape":
        """A model's."""
        return StagingShape(model.num_heads, model.num_kv_heads, model.head_dim, dtype)

    def allocate(self, binding: LaneBinding) -> LaneStaging:
        """Memory for the tokens of a lane that attend and append in the host tier."""
        attention, append = binding.attention.get(Tier.HOST), binding.append.get(Tier.HOST)
        attending = 0 if attention is None else len(attention.positions)
        appended = 0 if append is None else len(append.slots)
        entries = (appended, self.kv_heads, self.head_dim)
        queries = (attending, self.heads, self.head_dim)
        return LaneStaging(
            query=torch.empty(queries, dtype=self.dtype),
            key=torch.empty(entries, dtype=self.dtype),
            value=torch.empty(entries, dtype=self.dtype),
            out=torch.empty(queries, dtype=torch.float32),
            lse=torch.empty(queries[:2], dtype=torch.float32),
        )

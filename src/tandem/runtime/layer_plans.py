"""A lane's attention planned for every layer, and the selection of its tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from tandem.kernels.tier_kernels import PlannedAttention, TierKernels
from tandem.kernels.upload import upload
from tandem.plan.binding import TierAttention

Selection = torch.Tensor | None


@dataclass(frozen=True, slots=True)
class LayerPlans:
    """One tier's part of a lane's attention, planned once for each window that layers have.

    Attributes:
        windows: of each layer.
    """

    by_window: Mapping[int, PlannedAttention]
    windows: tuple[int, ...]

    @staticmethod
    def make(
        attention: TierAttention, kernels: TierKernels, windows: tuple[int, ...]
    ) -> "LayerPlans":
        """Plans of all layers, for queries already selected."""
        selected = replace(attention, token_index=None)
        return LayerPlans({w: kernels.plan(selected, w) for w in set(windows)}, windows)

    @property
    def num_tokens(self) -> int:
        """Query tokens that take part, in every layer."""
        return self.of(0).num_tokens

    def of(self, layer: int) -> PlannedAttention:
        """The layer's plan."""
        return self.by_window[self.windows[layer]]


def selection_of(index: NDArray[np.int64] | None, device: torch.device) -> Selection:
    """Chosen tokens where they are selected; None: all."""
    return None if index is None else upload(index, device)


def select(tensor: torch.Tensor, index: Selection) -> torch.Tensor:
    """`tensor[index]`, or all of it."""
    return tensor if index is None else tensor.index_select(0, index)

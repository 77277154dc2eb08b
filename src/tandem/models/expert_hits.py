"""How often tokens went to each expert: what a placement of experts by use can be made from."""

import torch
from torch import Tensor

from tandem.spec.model import ModelSpec


class ExpertHits:
    """Counts since the start, of every layer and expert; layers without experts stay at 0.

    Attributes:
        counts: int64 [layers, experts], where the maths is done; none without experts.
    """

    def __init__(self, spec: ModelSpec, device: torch.device) -> None:
        self._others: list[ExpertHits] = []
        experts = 0 if spec.experts is None else spec.experts.count
        self.counts: Tensor = torch.zeros(
            spec.num_layers if experts else 0, experts, dtype=torch.int64, device=device
        )

    def add(self, layer: int, chosen: Tensor) -> None:
        """Tokens of a layer went to these experts: int64, of any shape."""
        places = chosen.flatten()  # `bincount` would ask the device how many there are
        self.counts[layer].scatter_add_(0, places, torch.ones_like(places))

    def include(self, other: "ExpertHits") -> None:
        """Count with these what is counted elsewhere: on the CPU, beside an accelerator."""
        self._others.append(other)

    def clear(self) -> None:
        """Forget what was counted, for instance of a warm-up."""
        for hits in (self, *self._others):
            hits.counts.zero_()

    def by_layer(self) -> tuple[tuple[int, ...], ...]:
        """The counts as plain numbers; empty without experts."""
        total = sum((other.counts for other in self._others), self.counts.cpu())
        return tuple(tuple(row) for row in total.tolist())

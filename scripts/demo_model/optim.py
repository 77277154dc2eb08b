"""Muon for the matrices of the layers, AdamW for the embeddings and the norms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class Muon(torch.optim.Optimizer):
    """Momentum whose update is orthogonalised by five Newton-Schulz steps, with weight decay."""

    def __init__(
        self, params: Iterable[nn.Parameter], lr: float, momentum: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every parameter; those of one shape are orthogonalised together."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
            for param in group["params"]:
                by_shape[param.shape].append(param)
            for params in by_shape.values():
                self._update(params, group)

    def _update(self, params: list[nn.Parameter], group: dict[str, float]) -> None:
        """Update parameters of equal shape."""
        directions = []
        for param in params:
            buffer = self.state[param].setdefault("momentum", torch.zeros_like(param))
            if param.grad is None:
                raise ValueError("every parameter of Muon needs a gradient")
            buffer.lerp_(param.grad, 1 - group["momentum"])
            directions.append(param.grad.lerp(buffer, group["momentum"]))
        rows, columns = params[0].shape
        size = group["lr"] * max(1.0, rows / columns) ** 0.5
        for param, update in zip(params, orthogonalise(torch.stack(directions)), strict=True):
            param.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-size)


def orthogonalise(batch: Tensor, steps: int = 5) -> Tensor:
    """Return the nearest (semi-)orthogonal matrices, roughly: singular values go to about 1."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = batch.to(torch.bfloat16)
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()

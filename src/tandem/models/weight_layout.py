"""How a layer's weights lie in memory: fused tensors, with a view for every single operation."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import torch
from torch import Tensor

from tandem.spec.operations import WeightShape
from tandem.spec.parameters import FUSED_MODULES


@dataclass(frozen=True, slots=True)
class Affine:
    """Weight and optional bias of a linear map ([out, in], [out]) or a norm ([size], [size])."""

    weight: Tensor
    bias: Tensor | None = None

    def to(self, dtype: torch.dtype) -> "Affine":
        """The same in another element type; itself if it is of that type."""
        if self.weight.dtype == dtype:
            return self
        bias = None if self.bias is None else self.bias.to(dtype)
        return Affine(self.weight.to(dtype), bias)


# Module name -> weights; has `qkv` and `gate_up` beside the single modules that are views of them.
Modules = dict[str, Affine]
Take = Callable[[tuple[int, ...]], Tensor]


class LayerLayout:
    """A layer's matrices in one piece of memory; its norms and biases lie by themselves.

    Args:
        shapes: of all its weights, in order of use.
    """

    def __init__(self, shapes: tuple[WeightShape, ...], dtype: torch.dtype) -> None:
        self._shapes = shapes
        self._dtype = dtype
        matrices = sum(shape.elements for shape in shapes if shape.is_matrix)
        self.size_bytes: int = dtype.itemsize * matrices

    def allocate(self, device: torch.device) -> Tensor:
        """Memory for one layer's matrices: [bytes] uint8."""
        return torch.empty(self.size_bytes, dtype=torch.uint8, device=device)

    def allocate_vectors(self, device: torch.device) -> list[Tensor]:
        """Memory for one layer's norms and biases."""
        found: list[Tensor] = []

        def take(shape: tuple[int, ...]) -> Tensor:
            tensor = torch.empty(shape, dtype=self._dtype, device="meta")
            if len(shape) > 1:
                return tensor
            found.append(torch.empty(shape, dtype=self._dtype, device=device))
            return found[-1]

        make_modules(self._shapes, take)
        return found

    def modules(self, memory: Tensor, vectors: list[Tensor]) -> Modules:
        """The layer's weights: views of its memory, and the vectors themselves."""
        at, left = 0, iter(vectors)

        def take(shape: tuple[int, ...]) -> Tensor:
            nonlocal at
            if len(shape) == 1:
                return next(left)
            size = prod(shape) * self._dtype.itemsize
            taken = memory[at : at + size].view(self._dtype).view(shape)
            at += size
            return taken

        return make_modules(self._shapes, take)


def allocate_modules(
    shapes: tuple[WeightShape, ...], dtype: torch.dtype, device: torch.device
) -> Modules:
    """Memory for weights, each tensor on its own."""
    return make_modules(shapes, partial(torch.empty, dtype=dtype, device=device))


def make_modules(shapes: tuple[WeightShape, ...], take: Take) -> Modules:
    """Weights of these shapes in memory that `take` gives, fused where `FUSED_MODULES` says."""
    by_name = {shape.name: shape.shape for shape in shapes}
    fused_into = {part: name for name, parts in FUSED_MODULES.items() for part in parts}
    modules: Modules = {}
    for shape in shapes:
        module = shape.name.rpartition(".")[0]
        if module in modules:
            continue
        fused = fused_into.get(module)
        parts = FUSED_MODULES[fused] if fused else (module,)
        whole = {
            part: take(_stack([by_name[f"{p}.{part}"] for p in parts]))
            for part in ("weight", "bias")
            if f"{module}.{part}" in by_name
        }
        if fused:
            modules[fused] = Affine(whole["weight"], whole.get("bias"))
        row = 0
        for part in parts:
            rows = by_name[f"{part}.weight"][0]
            views = {key: tensor.narrow(0, row, rows) for key, tensor in whole.items()}
            modules[part] = Affine(views["weight"], views.get("bias"))
            row += rows
    return modules


def _stack(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])

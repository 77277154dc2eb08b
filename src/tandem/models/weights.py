"""A model's weights in memory: fused tensors, with a view for every single operation.

Nothing is filled here: the checkpoint loader and the dummy filler both write through
`Weights.parameters()`, the one list of what there is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.operations import WeightShape
from tandem.spec.parameters import embedding_weights, head_weights, layer_weights

# Modules that share an input lie in one tensor, so that one product computes all of them.
FUSED_MODULES = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


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


@dataclass(frozen=True, slots=True)
class Parameter:
    """One canonical weight and where it lies.

    Attributes:
        layer: its layer, or None outside the layers.
        name: canonical, e.g. `q.weight`.
        tensor: the memory to fill, a view into a fused tensor for some; always contiguous.
    """

    layer: int | None
    name: str
    tensor: Tensor


# Module name -> weights; has `qkv` and `gate_up` beside the single modules that are views of them.
Modules = dict[str, Affine]


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model.

    Attributes:
        outer: `embedding`, `position_embedding` (learned positions only), `final_norm`, `head`;
            a tied head is the very tensor of the embedding.
        layers: one entry per layer.
    """

    outer: Modules
    layers: tuple[Modules, ...]
    tied: bool

    def parameters(self) -> Iterator[Parameter]:
        """Every stored weight once, in order of use: no fused tensors, no tied head."""
        outer = {name: a for name, a in self.outer.items() if not (self.tied and name == "head")}
        first = {name: a for name, a in outer.items() if "embedding" in name}
        yield from _parts(None, first)
        for index, layer in enumerate(self.layers):
            yield from _parts(index, {k: a for k, a in layer.items() if k not in FUSED_MODULES})
        yield from _parts(None, {name: a for name, a in outer.items() if name not in first})

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights."""
        return sum(p.tensor.numel() * p.tensor.element_size() for p in self.parameters())


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's name of an element type."""
    return getattr(torch, dtype.value)


def spec_dtype(dtype: torch.dtype) -> DType:
    """The element type that torch calls `dtype`.

    Raises:
        ValueError: weights and activations are never of that type.
    """
    return DType(str(dtype).removeprefix("torch."))


def allocate_weights(spec: ModelSpec, dtype: torch.dtype, device: torch.device) -> Weights:
    """Memory for all weights of `spec`, not yet filled."""
    outer = _allocate(embedding_weights(spec) + head_weights(spec), dtype, device)
    if spec.tie_embeddings:
        outer["head"] = outer["embedding"]
    shapes = layer_weights(spec)
    layers = tuple(_allocate(shapes, dtype, device) for _ in range(spec.num_layers))
    return Weights(outer=outer, layers=layers, tied=spec.tie_embeddings)


def _allocate(shapes: tuple[WeightShape, ...], dtype: torch.dtype, device: torch.device) -> Modules:
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
            part: torch.empty(
                _stack([by_name[f"{p}.{part}"] for p in parts]), dtype=dtype, device=device
            )
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


def _parts(layer: int | None, modules: Modules) -> Iterator[Parameter]:
    for name, affine in modules.items():
        yield Parameter(layer, f"{name}.weight", affine.weight)
        if affine.bias is not None:
            yield Parameter(layer, f"{name}.bias", affine.bias)

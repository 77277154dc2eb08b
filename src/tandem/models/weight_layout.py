"""How a layer's weights lie in memory: fused tensors, with a view for every single operation."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from math import prod

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_memory
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.operations import WeightShape
from tandem.spec.parameters import FUSED_MODULES
from tandem.spec.weight_format import WeightFormat


@dataclass(frozen=True, slots=True)
class Affine:
    """Weight and optional bias of a linear map ([out, in], [out]) or a norm ([size], [size]).

    Attributes:
        weight: as it lies in memory; of a quantized map its whole numbers, packed.
        quantized: what the weight means, if it is quantized.
    """

    weight: Tensor
    bias: Tensor | None = None
    quantized: QuantizedWeight | None = None

    def to(self, dtype: torch.dtype) -> "Affine":
        """The same in another element type, dequantized; itself if it is of that type."""
        if self.quantized is None and self.weight.dtype == dtype:
            return self
        weight = self.weight if self.quantized is None else self.quantized.dequantize()
        bias = None if self.bias is None else self.bias.to(dtype)
        return Affine(weight.to(dtype), bias)

    def rows(self, first: int, count: int) -> "Affine":
        """A view of some outputs."""
        return Affine(
            self.weight.narrow(0, first, count),
            None if self.bias is None else self.bias.narrow(0, first, count),
            None if self.quantized is None else self.quantized.rows(first, count),
        )


# Module name -> weights; has `qkv` and `gate_up` beside the single modules that are views of them.
# Those of an expert are `experts.N.gate` and so on, with `experts.N.gate_up`.
Modules = dict[str, Affine]
_FIRST = "q.weight"  # of the maps that lie in one tensor
# Gives memory of a shape and `dtype=`.
Take = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class LayerShapes:
    """All weights of a layer, and how they are kept.

    Attributes:
        shapes: in order of use.
        dtype: of what is not quantized.
        quantized: formats of the other linear maps by canonical name; those that lie fused are
            quantized alike.
    """

    shapes: tuple[WeightShape, ...]
    dtype: torch.dtype
    quantized: Mapping[str, WeightFormat]


class LayerLayout:
    """A layer's matrices in one piece of memory; its norms and biases lie by themselves.

    Wide elements come first, so that all are aligned without gaps.

    Attributes:
        projections, others: [first, end) in bytes: what queries, keys and values are made by, and
            what is not.
        queries, keys_values: of the former, what each of them is made by.
    """

    def __init__(self, shapes: LayerShapes) -> None:
        self._shapes = shapes
        matrices = _matrices(shapes)
        order = sorted(range(len(matrices)), key=lambda i: -matrices[i].itemsize)
        starts = [0, *accumulate(matrices[i].nbytes for i in order)]
        self._starts = dict(zip(order, starts, strict=False))
        self.size_bytes: int = starts[-1]
        projections = _projections(shapes)
        before = len(_matrices(projections))  # modules are made in the order of their use
        extents = [(starts[n], starts[n + 1], place < before) for n, place in enumerate(order)]
        made_by = [(first, end) for first, end, is_first in extents if is_first]
        self.projections = _joined(made_by)
        self.others = _joined((first, end) for first, end, is_first in extents if not is_first)
        rows = {each.name: each.shape[0] for each in projections.shapes if each.is_matrix}
        cuts = [
            first + (end - first) // sum(rows.values()) * rows[_FIRST] for first, end in made_by
        ]
        self.queries = _joined((first, cut) for (first, _), cut in zip(made_by, cuts, strict=True))
        self.keys_values = _joined((cut, end) for (_, end), cut in zip(made_by, cuts, strict=True))

    def allocate(self, device: torch.device) -> Tensor:
        """Memory for one layer's matrices: [bytes] uint8."""
        return bulk_memory((self.size_bytes,), torch.uint8, device)

    def allocate_vectors(self, device: torch.device) -> list[Tensor]:
        """Memory for one layer's norms and biases."""
        found: list[Tensor] = []

        def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            tensor = torch.empty(shape, dtype=dtype, device="meta")
            if len(shape) > 1:
                return tensor
            found.append(torch.empty(shape, dtype=dtype, device=device))
            return found[-1]

        make_modules(self._shapes, take)
        return found

    def modules(self, memory: Tensor, vectors: list[Tensor]) -> Modules:
        """The layer's weights: views of its memory, and the vectors themselves."""
        index, left = 0, iter(vectors)

        def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
            nonlocal index
            if len(shape) == 1:
                return next(left)
            start = self._starts[index]
            index += 1
            size = prod(shape) * dtype.itemsize
            return memory[start : start + size].view(dtype).view(shape)

        return make_modules(self._shapes, take)


def _matrices(shapes: LayerShapes) -> list[Tensor]:
    """Of a layer's fused tensors, without memory."""
    taken: list[Tensor] = []

    def take(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        tensor = torch.empty(shape, dtype=dtype, device="meta")
        if len(shape) > 1:
            taken.append(tensor)
        return tensor

    make_modules(shapes, take)
    return taken


def _projections(shapes: LayerShapes) -> LayerShapes:
    """Of a layer, what its maps of queries, keys and values are; they are used first."""
    names = FUSED_MODULES["qkv"]
    chosen = tuple(each for each in shapes.shapes if each.name.rpartition(".")[0] in names)
    return replace(shapes, shapes=chosen)


def _joined(extents: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that follow each other as one."""
    found: list[tuple[int, int]] = []
    for first, end in extents:
        follows = bool(found) and found[-1][1] == first
        found.append((found.pop()[0] if follows else first, end))
    return found


def allocate_modules(shapes: LayerShapes, device: torch.device) -> Modules:
    """Memory for weights, each tensor on its own."""
    return make_modules(shapes, partial(bulk_memory, device=device))


def make_modules(layer: LayerShapes, take: Take) -> Modules:
    """Weights of these shapes in memory that `take` gives, fused where `FUSED_MODULES` says."""
    by_name = {shape.name: shape.shape for shape in layer.shapes}
    fused_into = {part: name for name, parts in FUSED_MODULES.items() for part in parts}
    modules: Modules = {}
    for shape in layer.shapes:
        module = shape.name.rpartition(".")[0]
        if module in modules:
            continue
        owner, dot, own_name = module.rpartition(".")
        fused = fused_into.get(own_name)
        parts = [owner + dot + part for part in FUSED_MODULES[fused]] if fused else [module]
        stacked = {
            part: _stack([by_name[f"{p}.{part}"] for p in parts])
            for part in ("weight", "bias")
            if f"{module}.{part}" in by_name
        }
        whole = _take_affine(stacked, layer, layer.quantized.get(module), take)
        if fused:
            modules[owner + dot + fused] = whole
        row = 0
        for part in parts:
            rows = by_name[f"{part}.weight"][0]
            modules[part] = whole.rows(row, rows)
            row += rows
    return modules


def _take_affine(
    shapes: Mapping[str, tuple[int, ...]],
    layer: LayerShapes,
    format: WeightFormat | None,
    take: Take,
) -> Affine:
    bias = take(shapes["bias"], dtype=layer.dtype) if "bias" in shapes else None
    if format is None:
        return Affine(take(shapes["weight"], dtype=layer.dtype), bias)
    outputs, inputs = shapes["weight"]
    weight = QuantizedWeight.allocate(format, (outputs, inputs), take)
    return Affine(weight.q, bias, weight)


def _stack(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    return (sum(shape[0] for shape in shapes), *shapes[0][1:])

"""How a streamed layer's weights lie where CPU and accelerator each compute a part of its MLP.

An MLP is a sum over its intermediate size: `down(act(gate x) * up x)` is the same of the first
columns plus that of the others. So the layer lies in memory as if it had two MLPs, the CPU's behind
all else, and what comes in a pass is one piece, and what it lacks another one (ADR 0065). The CPU
may have attention's maps, too, which then lie before its MLP (ADR 0079).
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from tandem.models.weight_layout import Affine, LayerLayout, LayerShapes, Modules
from tandem.spec.operations import WeightShape

COLUMNS = "columns."
"""Before the names of modules of the CPU's MLP."""
_INTO = ("gate", "up", "fc0")
_OUT_OF = ("down", "fc1")
_ATTENTION = ("q", "k", "v", "output")


class DividedLayer:
    """One layout, for all layers of a kind.

    Args:
        shapes: of a whole layer, or of its MLP.
        columns: of the intermediate size, the CPU's, which are the first.
        attention_maps: those of attention are the CPU's, too.

    Attributes:
        size_bytes: of all of it, as of the layer undivided.
        comes, left_out: [first, end) in bytes: what comes in a pass, and what does not.
    """

    def __init__(self, shapes: LayerShapes, columns: int, *, attention_maps: bool = False) -> None:
        self._columns = columns
        self._moved = _ATTENTION if attention_maps else ()
        self._copied: list[tuple[Tensor, list[Tensor]]] = []
        here = [each for each in shapes.shapes if _module(each) not in self._moved]
        maps = [each for each in shapes.shapes if _module(each) in self._moved]
        left_out = (*maps, *_firsts(shapes, columns))
        both = (*(_others(each, columns) for each in here), *left_out)
        self._layout = LayerLayout(replace(shapes, shapes=both))
        self.size_bytes = self._layout.size_bytes
        elements = sum(each.elements for each in left_out if each.is_matrix)
        cut = self.size_bytes - elements * shapes.dtype.itemsize
        self.comes, self.left_out = [(0, cut)], [(cut, self.size_bytes)]

    def modules(self, memory: Tensor, whole: Modules) -> Modules:
        """The layer's weights: views of its memory, norms and biases of the undivided ones. Biases
        that do not lie so are copies, until `copy_biases` of nothing.

        Args:
            whole: the layer undivided, of which the matrices do not count.
        """
        vectors = self._layout.allocate_vectors(torch.device("meta"))
        made = self._layout.modules(memory, vectors)
        return {name: self._with_vectors(name, affine, whole) for name, affine in made.items()}

    def divide(self, memory: Tensor, whole: Modules) -> None:
        """Bring a layer that has been filled undivided into this order, in the same memory.

        Args:
            whole: views of that memory.
        """
        made = self._layout.modules(memory, self._layout.allocate_vectors(torch.device("meta")))
        names = (*self._moved, *_INTO, *_OUT_OF)
        filled = {name: whole[name].weight.clone() for name in names if name in whole}
        for name, values in filled.items():
            if name in self._moved:
                made[name].weight.copy_(values)
                continue
            along = 0 if name in _INTO else 1
            first, others = values.tensor_split([self._columns], dim=along)
            made[name].weight.copy_(others)
            made[COLUMNS + name].weight.copy_(first)

    def copy_biases(self) -> None:
        """Of all modules made so far, once the undivided ones are filled."""
        for target, sources in self._copied:
            torch.cat(sources, out=target)

    def _with_vectors(self, name: str, affine: Affine, whole: Modules) -> Affine:
        own = name.removeprefix(COLUMNS)
        if not affine.weight.is_meta and affine.bias is None:
            return affine
        there, bias = whole[own], whole[own].bias
        if affine.weight.is_meta:
            return there  # a norm
        if own in (*_INTO, "gate_up"):
            bias = self._bias_of(own, is_first=name != own, whole=whole)
        return replace(affine, bias=bias)

    def _bias_of(self, name: str, *, is_first: bool, whole: Modules) -> Tensor | None:
        parts = ("gate", "up") if name == "gate_up" else (name,)
        biases = [bias for part in parts if (bias := whole[part].bias) is not None]
        cut = [bias.tensor_split([self._columns])[not is_first] for bias in biases]
        if len(cut) < 2:
            return cut[0] if cut else None
        joined = torch.cat(cut)
        self._copied.append((joined, cut))
        return joined


def _module(shape: WeightShape) -> str:
    return shape.name.rpartition(".")[0]


def _others(shape: WeightShape, columns: int) -> WeightShape:
    """Of a weight, what is not the CPU's."""
    module = _module(shape)
    if module in _INTO:
        return replace(shape, shape=(shape.shape[0] - columns, *shape.shape[1:]))
    if module in _OUT_OF and shape.is_matrix:
        return replace(shape, shape=(shape.shape[0], shape.shape[1] - columns))
    return shape


def _firsts(shapes: LayerShapes, columns: int) -> Iterator[WeightShape]:
    """The CPU's; what is added once for all columns is the accelerator's."""
    for shape in shapes.shapes:
        module = _module(shape)
        if module in _INTO:
            yield WeightShape(COLUMNS + shape.name, (columns, *shape.shape[1:]))
        elif module in _OUT_OF and shape.is_matrix:
            yield WeightShape(COLUMNS + shape.name, (shape.shape[0], columns))

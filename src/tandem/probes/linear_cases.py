"""Cases of the linear benchmark: shapes, kinds of weights, and copies that exceed the caches."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.probes.walked_memory import WalkedMemory, fill
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

if TYPE_CHECKING:
    from tandem.kernels.native_linear import NativeLinear

_CACHE_MULTIPLE = 8
_DISTINCT = 1 << 22  # random numbers; a weight repeats them


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """A weight's shape; `gated` takes it for a gate above an up projection."""

    outputs: int
    inputs: int
    gated: bool = False

    def __str__(self) -> str:
        return f"{self.outputs}x{self.inputs}{' gate-up' if self.gated else ''}"


@dataclass(frozen=True, slots=True)
class WeightKind:
    """An element type, or a quantized format."""

    dtype: torch.dtype | None = None
    format: WeightFormat | None = None

    def __str__(self) -> str:
        if self.format is not None:
            return f"int{self.format.bits}/{self.format.group}"
        return str(self.dtype).removeprefix("torch.")

    @property
    def rounds_activations(self) -> bool:
        """Whether the kernels can multiply it in whole numbers."""
        return self.format is not None and self.format.bits == 8

    def size_bytes(self, shape: MatrixShape) -> int:
        """What one pass over the weight reads."""
        if self.format is not None:
            return self.format.size_bytes(shape.outputs, shape.inputs)
        assert self.dtype is not None
        return shape.outputs * shape.inputs * self.dtype.itemsize


FLOAT32 = WeightKind(torch.float32)
FLOAT16 = WeightKind(torch.float16)
BFLOAT16 = WeightKind(torch.bfloat16)


def quantized_kind(bits: Literal[4, 8], group: int) -> WeightKind:
    """A format of contract 9."""
    return WeightKind(format=WeightFormat(bits, group))


@dataclass(frozen=True, slots=True)
class Copies:
    """Weights that calls rotate over, side by side in memory, with equal values: two at least.

    Attributes:
        tensors: floating point [outputs, inputs]; empty for quantized kinds.
        quantized: empty for the others.
    """

    shape: MatrixShape
    kind: WeightKind
    tensors: tuple[Tensor, ...]
    quantized: tuple[QuantizedWeight, ...]

    def native(self) -> "list[NativeLinear]":
        """For the compiled kernels, over the same memory."""
        from tandem.kernels.native_linear import NativeLinear  # they may not be compiled yet

        if self.kind.format is not None:
            return [NativeLinear.quantized(weight) for weight in self.quantized]
        return [NativeLinear.of(weight) for weight in self.tensors]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.tensors) + len(self.quantized)


def uncached_bytes() -> int:
    """So much memory that reading it in turn finds little of it in a cache."""
    return _CACHE_MULTIPLE * last_level_cache_bytes()


def make_copies(shape: MatrixShape, kind: WeightKind, memory: WalkedMemory | None = None) -> Copies:
    """Random weights of the size that trained ones have.

    Args:
        memory: that they fill; None: new memory that exceeds the caches.
    """
    memory = WalkedMemory(uncached_bytes()) if memory is None else memory
    count = max(2, memory.size_bytes // kind.size_bytes(shape))
    if kind.format is not None:
        return Copies(shape, kind, (), _quantized(shape, kind.format, count, memory))
    assert kind.dtype is not None
    return Copies(shape, kind, _floats(shape, kind.dtype, count, memory), ())


def _floats(
    shape: MatrixShape, dtype: torch.dtype, count: int, memory: WalkedMemory
) -> tuple[Tensor, ...]:
    weights = memory.take((count, shape.outputs, shape.inputs), dtype)
    few = torch.randn(min(_DISTINCT, shape.outputs * shape.inputs)) * shape.inputs**-0.5
    fill(weights, few.to(dtype))
    return weights.unbind()


def _quantized(
    shape: MatrixShape, format: WeightFormat, count: int, memory: WalkedMemory
) -> tuple[QuantizedWeight, ...]:
    packed = format.packed_shape(shape.outputs, shape.inputs)
    groups = format.group_shape(shape.outputs, shape.inputs)
    sizes = [count * size for size in (prod(packed), 2 * prod(groups), prod(groups))]
    q, scales, zeros = memory.take((sum(sizes),), torch.uint8).split(sizes)
    fill(q, torch.randint(256, (min(_DISTINCT, prod(packed)),), dtype=torch.uint8))
    spread = 2 * shape.inputs**-0.5 / format.largest
    scales = scales.view(torch.float16)
    fill(scales, ((0.5 + torch.rand(prod(groups))) * spread).to(torch.float16))
    middle = format.largest // 2
    few = torch.randint(middle - middle // 8, middle + middle // 8 + 2, (prod(groups),))
    fill(zeros, few.to(torch.uint8))
    tensors = q.view(count, *packed), scales.view(count, *groups), zeros.view(count, *groups)
    return tuple(QuantizedWeight(format, *each) for each in zip(*tensors, strict=True))

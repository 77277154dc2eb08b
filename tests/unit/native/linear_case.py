"""Linear maps of every kind of weight, and what they should give."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tandem.kernels.native_linear import Activation, NativeLinear
from tandem.quant.quantize import quantize
from tandem.spec.weight_format import WeightFormat

KINDS = ["float32", "float16", "bfloat16", "int8", "int4"]
_BITS = {"int8": 8, "int4": 4}


@dataclass(frozen=True)
class LinearCase:
    """A map and its values in float64."""

    native: NativeLinear
    values: Tensor  # float64 [outputs, inputs]
    bias: Tensor  # float64 [outputs]; 0 if there is none

    def sums(self, x: Tensor) -> Tensor:
        """Exactly what the map makes of `x` [rows, inputs]: float64 [rows, outputs]."""
        return x.double() @ self.values.t() + self.bias

    def sizes(self, x: Tensor) -> Tensor:
        """What rounding errors of `sums` are relative to."""
        return x.double().abs() @ self.values.abs().t() + self.bias.abs() + 1e-6


def make_linear(
    kind: str, outputs: int, inputs: int, *, group: int = 32, bias: bool = False, seed: int = 0
) -> LinearCase:
    """A random map; inputs of a quantized one must be a multiple of the group."""
    random = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=random)
    added = torch.randn(outputs, generator=random) if bias else None
    offset = torch.zeros(outputs) if added is None else added
    if kind in _BITS:
        quantized = quantize(weight, WeightFormat(_BITS[kind], group))
        native = NativeLinear.quantized(quantized, added)
        return LinearCase(native, quantized.dequantize().double(), offset.double())
    weight = weight.to(getattr(torch, kind))
    return LinearCase(NativeLinear.of(weight, added), weight.double(), offset.double())


def activate(x: Tensor, activation: Activation) -> Tensor:
    """By torch, in float64 if `x` is."""
    if activation == Activation.SILU:
        return functional.silu(x)
    if activation == Activation.GELU:
        return x * 0.5 * torch.special.erfc(-x / 2**0.5)
    if activation == Activation.GELU_TANH:
        return functional.gelu(x, approximate="tanh")
    return x.relu() if activation == Activation.RELU else x

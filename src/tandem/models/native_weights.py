"""Weights as the compiled kernels take them.

Import this module only if `native.available()`.
"""

from tandem.kernels import _native
from tandem.kernels.native_linear import Activation, NativeLinear
from tandem.models.weight_layout import Affine
from tandem.spec.model import ModelSpec

ACTIVATIONS = {
    "silu": Activation.SILU,
    "gelu": Activation.GELU,
    "gelu_tanh": Activation.GELU_TANH,
    "relu": Activation.RELU,
}


def native_norm(spec: ModelSpec, affine: Affine) -> _native.Norm:
    """A norm, with the offset that some architectures add to its weight."""
    bias = None if affine.bias is None else affine.bias.float()
    weight = affine.weight.float()
    if spec.norm_offset:
        weight = weight + spec.norm_offset
    return _native.Norm(weight, bias, spec.norm_eps)


def native_linear(affine: Affine) -> NativeLinear:
    """A linear map over the memory that it lies in."""
    bias = None if affine.bias is None else affine.bias.float()
    if affine.quantized is not None:
        return NativeLinear.quantized(affine.quantized, bias)
    return NativeLinear.of(affine.weight, bias)

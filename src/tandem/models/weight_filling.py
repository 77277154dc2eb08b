"""Writes a checkpoint's numbers into a model's memory, in whatever form each of them has."""

import torch
from torch import Tensor

from tandem.models.weights import Parameter
from tandem.quant.quantize import dequantize_into, quantize_into
from tandem.quant.quantized_weight import QuantizedWeight


class RangeError(ValueError):
    """Values beyond what the wanted type holds."""


def fill(parameter: Parameter, value: Tensor | QuantizedWeight) -> None:
    """Copy, convert, quantize or dequantize; nothing is rounded twice.

    Raises:
        RangeError: values beyond float16.
        ValueError: values that cannot be quantized, or are quantized in another format.
    """
    target = parameter.quantized
    if target is not None:
        if isinstance(value, QuantizedWeight):
            target.copy_(value)
        else:
            quantize_into(target, value)
    elif isinstance(value, QuantizedWeight):
        dequantize_into(parameter.tensor, value)
        _check_range(parameter.tensor)
    else:
        parameter.tensor.copy_(value)
        if value.dtype != parameter.tensor.dtype:
            _check_range(parameter.tensor)


def _check_range(tensor: Tensor) -> None:
    if tensor.dtype == torch.float16 and not bool(torch.isfinite(tensor).all()):
        raise RangeError("holds values beyond float16's range")

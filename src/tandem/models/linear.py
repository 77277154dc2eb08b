"""Linear maps, on whichever of torch's CPU paths is the fastest for the number of rows.

`F.linear` calls MKL for float32 on a CPU, which is best for one to three rows and for many, but
reads a large matrix at half the speed of memory for the batches in between. oneDNN's kernel, or the
weight put first, `(weight @ x.T).T`, do those up to twice as fast. In bfloat16 on cores with AMX
the latter reads a third faster up to a few dozen rows; without AMX, 16-bit products are torch's.
(Medians on AVX-512 cores with AMX, 1M to 33M elements. Where two paths differ by less than a tenth,
the simpler one is taken; smaller maps gain nothing.)

On other makers' processors MKL computes the product with a vector on one thread: oneDNN reads the
matrix twice as fast there, and is the fastest or within a tenth of it for any number of rows.
(Medians on Zen 4 with AVX2, 1M to 33M elements, 1 to 512 rows.)
"""

from enum import Enum, auto
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.devices.cpu import has_amx, is_intel
from tandem.models.weight_layout import Affine
from tandem.quant.quantize import rows_at_once
from tandem.quant.quantized_weight import QuantizedWeight

if TYPE_CHECKING:
    from tandem.kernels.triton_support import TritonDevice

_MIN_ELEMENTS, _LARGE_ELEMENTS = 1024 * 1024, 2 * 1024 * 1024
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(
    torch.ops.mkldnn, "_linear_pointwise"
)
_HAS_AMX = has_amx()
_IS_INTEL = is_intel()


class Path(Enum):
    """A way to compute a linear map."""

    TORCH = auto()
    WEIGHT_FIRST = auto()
    ONEDNN = auto()


def choose_path(weight: Tensor, rows: int) -> Path:
    """The fastest way for `rows` inputs; a fixed rule, so that runs repeat exactly."""
    if weight.device.type != "cpu" or weight.numel() < _MIN_ELEMENTS or not _HAS_ONEDNN:
        return Path.TORCH
    outputs, inputs = weight.shape
    if weight.dtype == torch.float32:
        if not _IS_INTEL:
            return Path.ONEDNN
        if 8 <= rows <= 48 and outputs >= inputs:
            return Path.WEIGHT_FIRST
        is_large = weight.numel() >= _LARGE_ELEMENTS
        return Path.ONEDNN if is_large and 4 <= rows <= 256 else Path.TORCH
    if weight.dtype == torch.bfloat16 and _HAS_AMX:
        few = 32 if outputs < 2 * inputs else 128
        return Path.WEIGHT_FIRST if rows <= few else Path.TORCH
    return Path.TORCH


def linear(affine: Affine, x: Tensor) -> Tensor:
    """`x @ weight.T + bias` for `x` [T, in]: [T, out], new memory, contiguous."""
    if affine.quantized is not None:
        from tandem.kernels.triton_support import unit_of

        return quantized_linear(affine, affine.quantized, x, unit_of(x.device))
    affine = affine.to(x.dtype)
    path = choose_path(affine.weight, x.shape[0])
    if path is Path.WEIGHT_FIRST:
        return _weight_first(affine, x).t().contiguous()
    if path is Path.ONEDNN:
        return torch.ops.mkldnn._linear_pointwise(x, affine.weight, affine.bias, "none", [], "")
    return F.linear(x, affine.weight, affine.bias)


def add_linear(affine: Affine, x: Tensor, target: Tensor) -> None:
    """Add `x @ weight.T + bias` to `target` [T, out] in place."""
    if affine.quantized is not None:
        target.add_(linear(affine, x))
        return
    affine = affine.to(x.dtype)
    path = choose_path(affine.weight, x.shape[0])
    if path is Path.WEIGHT_FIRST:
        target.add_(_weight_first(affine, x).t())
    elif path is Path.ONEDNN:
        target.add_(linear(affine, x))
    else:
        # The product accumulates straight into the target: no temporary, one pass fewer.
        target.addmm_(x, affine.weight.t())
        if affine.bias is not None:
            target.add_(affine.bias)


def multiply_codes(weight: QuantizedWeight, x: Tensor) -> Tensor:
    """`x @ weight.T` for `x` [T, in], as a layer's map does it: [T, out]."""
    return linear(Affine(weight.q, quantized=weight), x)


def dequantize(weight: QuantizedWeight, dtype: torch.dtype) -> Tensor:
    """Every element, as before a product of many rows: [out, in]."""
    from tandem.kernels.triton_support import unit_of

    return _dequantized(Affine(weight.q, quantized=weight), dtype, unit_of(weight.q.device)).weight


def quantized_linear(
    affine: Affine, weight: QuantizedWeight, x: Tensor, unit: "TritonDevice | None"
) -> Tensor:
    """By codes where a GPU multiplies few rows; else some outputs at a time, so that little is ever
    dequantized at once.

    Args:
        unit: of the GPU; None: no kernels but torch's.
    """
    if unit is not None:
        from tandem.kernels.triton_products import most_rows_fused, multiply

        if x.shape[0] <= most_rows_fused(x.element_size(), unit):
            return multiply(x, weight, affine.bias, unit)
    y = torch.empty(x.shape[0], weight.outputs, dtype=x.dtype, device=x.device)
    count = rows_at_once(weight)
    for first in range(0, weight.outputs, count):
        outputs = min(count, weight.outputs - first)
        part = _dequantized(affine.rows(first, outputs), x.dtype, unit)
        y[:, first : first + outputs] = linear(part, x)
    return y


def _dequantized(affine: Affine, dtype: torch.dtype, unit: "TritonDevice | None") -> Affine:
    if affine.quantized is None or unit is None:
        return affine.to(dtype)
    from tandem.kernels.triton_products import dequantize

    bias = None if affine.bias is None else affine.bias.to(dtype)
    return Affine(dequantize(affine.quantized, dtype), bias)


def _weight_first(affine: Affine, x: Tensor) -> Tensor:
    """`weight @ x.T + bias`: [out, T], perhaps a view."""
    rows = x.shape[0]
    if rows == 1:
        # AMX's kernels start at two columns; the product with a vector is a third slower.
        x = x.expand(2, -1)
    if affine.bias is None:
        product = torch.mm(affine.weight, x.t())
    else:
        product = torch.addmm(affine.bias[:, None], affine.weight, x.t())
    return product[:, :rows]

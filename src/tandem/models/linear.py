"""Linear maps, on whichever of torch's two CPU paths is the faster one.

`F.linear` calls MKL for float32 on a CPU, which is best for one to three rows and for many, but
reads a large matrix at half the speed of memory for the batches in between. oneDNN's kernel does
those 1.1 to 2 times as fast (measured on AVX-512 cores at 3M to 65M elements; below 2M elements its
cost per call outweighs that).
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from tandem.models.weights import Affine

_MIN_ROWS, _MAX_ROWS = 4, 64
_MIN_ELEMENTS = 2 * 1024 * 1024
_HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(
    torch.ops.mkldnn, "_linear_pointwise"
)


def linear(affine: Affine, x: Tensor) -> Tensor:
    """`x @ weight.T + bias` for `x` [T, in]: [T, out], new memory."""
    if _prefers_onednn(affine.weight, x):
        return torch.ops.mkldnn._linear_pointwise(x, affine.weight, affine.bias, "none", [], "")
    return F.linear(x, affine.weight, affine.bias)


def add_linear(affine: Affine, x: Tensor, target: Tensor) -> None:
    """Add `x @ weight.T + bias` to `target` [T, out] in place."""
    if _prefers_onednn(affine.weight, x):
        target.add_(linear(affine, x))
        return
    # The product accumulates straight into the target: no temporary, one pass fewer.
    target.addmm_(x, affine.weight.t())
    if affine.bias is not None:
        target.add_(affine.bias)


def _prefers_onednn(weight: Tensor, x: Tensor) -> bool:
    return (
        _HAS_ONEDNN
        and _MIN_ROWS <= x.shape[0] <= _MAX_ROWS
        and weight.numel() >= _MIN_ELEMENTS
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
    )

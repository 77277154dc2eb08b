"""Weights to few bits: evenly spaced values between the least and the greatest of a group."""

import torch
from torch import Tensor

from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

_LEAST_SCALE = 2.0**-24  # of float16
# On a CPU, a few temporaries in float64 stay in the caches; elsewhere, few and large operations.
_ELEMENTS_AT_ONCE = {"cpu": 1 << 18}
_ELEMENTS_AT_ONCE_ELSEWHERE = 1 << 22


def quantize(
    weight: Tensor,  # floating point [outputs, inputs]
    format: WeightFormat,
) -> QuantizedWeight:
    """Round to the nearest value of each group; 0 is always one of them.

    Scales are rounded to float16, downwards, before anything is divided by them: so a group uses
    every `q` from 0 to the largest, and what was quantized once stays so when quantized again.
    An element is off by at most half a scale and, at the ends of the range, by as much as the
    scale's rounding amounts to, up to `largest` times.

    Raises:
        ValueError: values that are not finite, or beyond what a float16 scale spans; a format of
            floats.
        ConfigError: rows that are not whole groups.
    """
    if format.floats:
        raise ValueError(f"weights are quantized to whole numbers, not to {format}")
    outputs, inputs = weight.shape
    format.check(inputs)
    groups = weight.double().view(outputs, -1, format.group)
    if not bool(groups.isfinite().all()):
        raise ValueError("only finite weights can be quantized; download the file again")
    low = groups.amin(2).clamp(max=0.0)
    high = groups.amax(2).clamp(min=0.0)
    scales = _round_down((high - low) / format.largest)
    steps = scales.double()
    # Of two values equally near, z takes the lower and q the higher: the ends stay in use.
    zeros = (-low / steps - 0.5).ceil().clamp(0, format.largest)
    q = (groups / steps[..., None] + zeros[..., None] + 0.5).floor().clamp(0, format.largest)
    return QuantizedWeight.from_whole_numbers(format, q.view(outputs, inputs), scales, zeros)


def quantize_into(
    target: QuantizedWeight,
    weight: Tensor,  # floating point [outputs, inputs]
) -> None:
    """`quantize`, some rows at a time: hardly any memory beside the result.

    Raises:
        ValueError: as `quantize`; part of `target` has been written.
    """
    count = rows_at_once(target)
    for first in range(0, target.outputs, count):
        rows = weight[first : first + count]
        target.rows(first, len(rows)).copy_(quantize(rows, target.format))


def rows_at_once(weight: QuantizedWeight) -> int:
    """How many outputs of a weight to take at a time."""
    elements = _ELEMENTS_AT_ONCE.get(weight.q.device.type, _ELEMENTS_AT_ONCE_ELSEWHERE)
    return max(1, elements // weight.inputs)


def _round_down(
    scales: Tensor,  # float64 [outputs, groups], not negative
) -> Tensor:
    """The greatest float16 that is no more, but at least the least positive one."""
    if bool((scales > torch.finfo(torch.float16).max).any()):
        raise ValueError("weights spread too far for scales of float16; use --quantization none")
    nearest = scales.to(torch.float16)
    below = torch.nextafter(nearest, torch.zeros_like(nearest))
    return torch.where(nearest.double() > scales, below, nearest).clamp(min=_LEAST_SCALE)

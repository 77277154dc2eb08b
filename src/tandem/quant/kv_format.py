"""Keys and values to codes and back, group by group (torch reference).

Asymmetric: x = code * scale + minimum, where scale and minimum are rounded to float16 before codes
are computed, so that what is stored is what codes were made for. Values beyond float16 count as its
largest. A group whose range is below 255 (15) times float16's smallest number becomes its minimum.
A group with an infinity or NaN becomes NaN as a whole: an error stays visible.
"""

import torch
from torch import Tensor

from tandem.memory.quantized_page import CODE_RUN, QuantizedPage

_LARGEST_HALF = 65504.0


def quantize(
    values: Tensor,  # [..., head_dim]
    page: QuantizedPage,
) -> tuple[Tensor, Tensor]:
    """Codes uint8 `[..., row_bytes]` and pairs float16 `[..., groups, 2]` (scale, minimum)."""
    grouped = _fill_row(values.float(), page).unflatten(-1, (page.groups, page.group_size))
    finite = grouped.isfinite().all(-1, keepdim=True)
    grouped = torch.where(finite, grouped, 0.0)
    low = grouped.amin(-1, keepdim=True).clamp(-_LARGEST_HALF, _LARGEST_HALF)
    high = grouped.amax(-1, keepdim=True).clamp(-_LARGEST_HALF, _LARGEST_HALF)
    levels = (1 << page.bits) - 1
    minimum = (low + 0.0).half()  # not -0
    scale = ((high - minimum.float()).clamp(min=0.0) / levels).half()
    codes = ((grouped - minimum.float()) / scale.float()).clamp(0, levels).round()
    codes = torch.where(scale > 0, codes, 0.0).to(torch.uint8).flatten(-2)
    pairs = torch.where(finite, torch.cat((scale, minimum), -1), torch.nan)
    return (codes if page.bits == 8 else _pack(codes)), pairs


def dequantize(
    codes: Tensor,  # uint8 [..., row_bytes]
    pairs: Tensor,  # float16 [..., groups, 2]
    page: QuantizedPage,
) -> Tensor:
    """Float32 `[..., head_dim]`."""
    wide = codes if page.bits == 8 else _unpack(codes)
    values = wide.unflatten(-1, (page.groups, page.group_size)).float()
    scale, minimum = pairs.float().split(1, -1)
    return values.mul_(scale).add_(minimum).flatten(-2)[..., : page.head_dim]


def _fill_row(values: Tensor, page: QuantizedPage) -> Tensor:
    missing = page.row_elements - page.head_dim
    if not missing:
        return values
    last = values[..., -1:].expand(*values.shape[:-1], missing)
    return torch.cat((values, last), -1)


def _pack(codes: Tensor) -> Tensor:
    low, high = codes.unflatten(-1, (-1, 2, CODE_RUN // 2)).unbind(-2)
    return (low | (high << 4)).flatten(-2)


def _unpack(packed: Tensor) -> Tensor:
    halves = packed.unflatten(-1, (-1, 1, CODE_RUN // 2))
    return torch.cat((halves & 15, halves >> 4), -2).flatten(-3)

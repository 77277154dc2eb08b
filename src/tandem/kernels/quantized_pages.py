"""Appending to and gathering from pages of quantized keys and values (torch reference).

`pages` is uint8 `[num_blocks, page_bytes]`, one layer; see `memory.quantized_page`.
"""

import torch
from torch import Tensor

from tandem.memory.quantized_page import QuantizedPage
from tandem.quant.kv_format import dequantize, quantize


def code_rows(pages: Tensor, page: QuantizedPage) -> Tensor:
    """A view of the codes: uint8 `[num_blocks, 2 * kv_heads, block_size, row_bytes]`."""
    shape = (2 * page.kv_heads, page.block_size, page.row_bytes)
    return pages[:, : page.code_bytes].unflatten(1, shape)


def pair_rows(pages: Tensor, page: QuantizedPage) -> Tensor:
    """A view of scales and minima: float16 `[num_blocks, 2 * kv_heads, block_size, groups, 2]`."""
    shape = (2 * page.kv_heads, page.groups, 2, page.block_size)
    rows = pages[:, page.code_bytes :].view(torch.float16).unflatten(1, shape)
    return rows.permute(0, 1, 4, 2, 3)


def append_quantized(
    pages: Tensor,  # uint8 [num_blocks, page_bytes]; written in place
    k: Tensor,  # [t, kv_heads, head_dim]
    v: Tensor,  # [t, kv_heads, head_dim]
    slots: Tensor,  # int64 [t]
    page: QuantizedPage,
) -> None:
    """Quantize new keys and values into their slots; nothing but their own bytes is touched."""
    codes, pairs = quantize(torch.cat((k, v), dim=1), page)
    block = torch.div(slots, page.block_size, rounding_mode="floor")
    offset = slots % page.block_size
    code_rows(pages, page)[block, :, offset] = codes
    pair_rows(pages, page)[block, :, offset] = pairs


def gather_quantized(
    pages: Tensor,  # uint8 [num_blocks, page_bytes]
    index: Tensor,  # int64 [n]; of [num_blocks, 2 * kv_heads, block_size / piece]
    piece: int,
    slots: int,
    page: QuantizedPage,
) -> Tensor:
    """The first `slots` rows of each of the chosen pieces: float32 `[n, slots, head_dim]`."""
    parts = page.block_size // piece
    row = torch.div(index, parts, rounding_mode="floor")
    block = torch.div(row, 2 * page.kv_heads, rounding_mode="floor")
    head, part = row % (2 * page.kv_heads), index % parts

    def chosen(rows: Tensor) -> Tensor:
        return rows.unflatten(2, (parts, piece))[:, :, :, :slots][block, head, part]

    return dequantize(chosen(code_rows(pages, page)), chosen(pair_rows(pages, page)), page)

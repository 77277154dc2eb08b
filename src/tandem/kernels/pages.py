"""The canonical KV page (contract 7): `[layer][block][K|V][kv_head][token][head_dim]`.

A *slot* is a token's place in one layer of one pool: block id * block size + offset in the block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PageShape:
    """Shape of one page: K and V of `block_size` tokens in one layer."""

    kv_heads: int
    block_size: int
    head_dim: int

    @staticmethod
    def of(pages: Tensor) -> "PageShape":
        """Shape of the pages in `pages [num_blocks, 2, kv_heads, block_size, head_dim]`."""
        _, _, kv_heads, block_size, head_dim = pages.shape
        return PageShape(kv_heads, block_size, head_dim)

    @property
    def numel(self) -> int:
        """Elements of one page."""
        return 2 * self.kv_heads * self.block_size * self.head_dim


def append_kv(
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; one layer, written in place
    k: Tensor,  # [t, kv_heads, head_dim]
    v: Tensor,  # [t, kv_heads, head_dim]
    slots: Tensor,  # int64 [t]
) -> None:
    """Write new keys and values into their slots, in the pages' element type."""
    block_size = pages.shape[3]
    block = torch.div(slots, block_size, rounding_mode="floor")
    offset = slots - block * block_size
    by_token = pages.permute(0, 3, 1, 2, 4)  # [num_blocks, block_size, 2, kv_heads, head_dim]
    by_token[block, offset] = torch.stack((k, v), dim=1).to(pages.dtype)


def copy_blocks(
    src_pages: Tensor,  # [layers, num_src_blocks, 2, kv_heads, block_size, head_dim]
    src_ids: Tensor,  # int64 [n], on the device of src_pages
    dst_pages: Tensor,  # [layers, num_dst_blocks, 2, kv_heads, block_size, head_dim]; in place
    dst_ids: Tensor,  # int64 [n], on the device of dst_pages
) -> None:
    """Copy whole blocks of all layers from one pool to another, byte for byte.

    Raises:
        ValueError: the pools differ in element type, layers or page shape.
    """
    source, target = _layout(src_pages), _layout(dst_pages)
    if source != target:
        raise ValueError(f"KV pools differ in layout: {source} and {target}")
    for src, dst in zip(src_pages, dst_pages, strict=True):  # per layer bounds the staging buffer
        dst.index_copy_(0, dst_ids, src.index_select(0, src_ids).to(dst.device))


def _layout(pages: Tensor) -> tuple[torch.dtype, int, PageShape]:
    return pages.dtype, pages.shape[0], PageShape.of(pages[0])

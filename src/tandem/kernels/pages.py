"""The canonical KV page (contract 7): `[layer][block][K|V][kv_head][token][head_dim]`.

Pages of floats are of the type that they hold; where that takes a byte (e4m3), of uint8.

A *slot* is a token's place in one layer of one pool: block id * block size + offset in the block.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels.quantized_pages import append_quantized, gather_quantized
from tandem.memory.quantized_page import QuantizedPage


@dataclass(frozen=True, slots=True)
class PageShape:
    """Shape of one page: K and V of `block_size` tokens in one layer.

    Attributes:
        code_bits: of quantized pages, which are uint8 `[num_blocks, page_bytes]`; 0: floats.
    """

    kv_heads: int
    block_size: int
    head_dim: int
    code_bits: int = 0

    @staticmethod
    def of(pages: Tensor) -> "PageShape":
        """Shape of the float pages `[num_blocks, 2, kv_heads, block_size, head_dim]`."""
        _, _, kv_heads, block_size, head_dim = pages.shape
        return PageShape(kv_heads, block_size, head_dim)

    @property
    def numel(self) -> int:
        """Elements of one page."""
        return 2 * self.kv_heads * self.block_size * self.head_dim

    @property
    def quantized(self) -> QuantizedPage:
        """Layout of quantized pages.

        Raises:
            ValueError: they are not quantized, or their heads cannot be.
        """
        return QuantizedPage(self.code_bits, self.kv_heads, self.block_size, self.head_dim)


def append_kv(
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; one layer, written in place
    k: Tensor,  # [t, kv_heads, head_dim]
    v: Tensor,  # [t, kv_heads, head_dim]
    slots: Tensor,  # int64 [t]
) -> None:
    """Write new keys and values into their slots, in the pages' element type."""
    append_kv_rows(pages, k, v, page_rows(slots, PageShape.of(pages)))


def page_rows(slots: Tensor, shape: PageShape) -> Tensor:
    """Where each token's K and V heads lie in one layer's pages, viewed as rows of `head_dim`.

    The same for all layers of a step, so that it is computed once.

    Args:
        slots: int64 [t].

    Returns:
        int64 [t * 2 * kv_heads]; per token its K heads, then its V heads.
    """
    block = torch.div(slots, shape.block_size, rounding_mode="floor")
    first = block * (2 * shape.kv_heads * shape.block_size) + slots % shape.block_size
    head = torch.arange(2 * shape.kv_heads, device=slots.device) * shape.block_size
    return (first[:, None] + head).view(-1)


def append_kv_rows(
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; one layer, written in place
    k: Tensor,  # [t, kv_heads, head_dim]
    v: Tensor,  # [t, kv_heads, head_dim]
    rows: Tensor,  # int64 [t * 2 * kv_heads]; of `page_rows`
) -> None:
    """`append_kv` for slots whose rows are known."""
    head_dim = pages.shape[4]
    entries = torch.stack((k, v), dim=1)
    if pages.dtype is torch.uint8:
        # Imported where pages hold such floats: a first token waits for what is imported.
        from tandem.kernels.narrow_floats import encode

        entries = encode(entries)
    entries = entries.to(pages.dtype)
    pages.view(-1, head_dim).index_copy_(0, rows, entries.view(-1, head_dim))


def plan_append(slots: Tensor, shape: PageShape) -> Tensor:
    """What `append_planned` needs of slots int64 `[t]`: their rows, or the slots if quantized."""
    return slots if shape.code_bits else page_rows(slots, shape)


def append_planned(
    pages: Tensor,  # one layer of pages of `shape`, written in place
    k: Tensor,  # [t, kv_heads, head_dim]
    v: Tensor,  # [t, kv_heads, head_dim]
    planned: Tensor,  # of `plan_append`
    shape: PageShape,
) -> None:
    """Write or quantize new keys and values into their slots."""
    if shape.code_bits:
        append_quantized(pages, k, v, planned, shape.quantized)
    else:
        append_kv_rows(pages, k, v, planned)


def gather_kv(
    pages: Tensor,  # one layer of pages of `shape`, contiguous
    index: Tensor,  # int64 [n]; of [num_blocks, 2 * kv_heads, block_size / piece]
    piece: int,
    slots: int,
    shape: PageShape,
) -> Tensor:
    """The first `slots` tokens of each of the chosen pieces: float32 `[n, slots, head_dim]`."""
    if shape.code_bits:
        return gather_quantized(pages, index, piece, slots, shape.quantized)
    pieces = pages.view(-1, piece, shape.head_dim)
    if slots < piece:
        pieces = pieces[:, :slots]
    chosen = pieces.index_select(0, index)
    if pages.dtype is torch.uint8:
        from tandem.kernels.narrow_floats import decode

        return decode(chosen)
    return chosen.float()


def copy_blocks(
    src_pages: Tensor,  # [layers, num_src_blocks, ...page]
    src_ids: Tensor,  # int64 [n], on the host
    dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; in place
    dst_ids: Tensor,  # int64 [n], on the host
) -> None:
    """Copy whole blocks of all layers from one pool to another in the same memory, byte for byte.

    Raises:
        ValueError: the pools differ in element type, layers or page shape.
    """
    require_alike(src_pages, dst_pages)
    src_ids, dst_ids = src_ids.to(src_pages.device), dst_ids.to(dst_pages.device)
    for src, dst in zip(src_pages, dst_pages, strict=True):  # per layer bounds the staging buffer
        dst.index_copy_(0, dst_ids, src.index_select(0, src_ids))


def require_alike(src_pages: Tensor, dst_pages: Tensor) -> None:
    """That a block of one pool can be one of the other.

    Raises:
        ValueError: they differ in element type, layers or page shape.
    """
    source, target = _layout(src_pages), _layout(dst_pages)
    if source != target:
        raise ValueError(f"KV pools differ in layout: {source} and {target}")


def _layout(pages: Tensor) -> tuple[torch.dtype, int, tuple[int, ...]]:
    return pages.dtype, pages.shape[0], tuple(pages.shape[2:])

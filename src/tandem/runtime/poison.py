"""Spoils pages that are about to be written, so that reading them too early fails a test."""

from torch import Tensor

from tandem.kernels.quantized_pages import code_rows, pair_rows
from tandem.memory.page import KVPageSpec

# Finite in every dtype: it spoils any result that uses it, while masked reads stay harmless.
PAGE_POISON = 3.0e4
_BYTE_POISON = 0x78  # as two bytes, a float16 of some 36,000; as e4m3, 256


def poison_blocks(pages: Tensor, ids: list[int], page: KVPageSpec) -> None:
    """Spoil whole blocks of `pages [layers, num_blocks, ...page]`."""
    pages[:, ids] = _BYTE_POISON if page.held_in_bytes else PAGE_POISON


def poison_run(pages: Tensor, first: int, count: int, page: KVPageSpec) -> None:
    """Spoil blocks that follow each other in one layer's pages."""
    pages[first : first + count] = _BYTE_POISON if page.held_in_bytes else PAGE_POISON


def poison_slots(pages: Tensor, slots: Tensor, page: KVPageSpec) -> None:
    """Spoil tokens' slots, int64 `[t]`, in one layer's pages."""
    block, offset = slots // page.block_size, slots % page.block_size
    if not page.code_bits:
        pages[block, :, :, offset] = _BYTE_POISON if page.held_in_bytes else PAGE_POISON
        return
    code_rows(pages, page.quantized)[block, :, offset] = _BYTE_POISON
    pair_rows(pages, page.quantized)[block, :, offset] = PAGE_POISON

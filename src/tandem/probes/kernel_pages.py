"""Pages of random keys and values for the kernel benchmark."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.narrow_floats import encode
from tandem.kernels.pages import PageShape
from tandem.kernels.quantized_pages import append_quantized
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape
from tandem.probes.walked_memory import fill
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType

_CHUNK_ELEMENTS = 1 << 20
_CHUNK_PAGES = 16

Take = Callable[[Sequence[int], torch.dtype], Tensor]
"""Memory of a shape and a type."""


def float_pages(
    shape: HeadShape, count: int, dtype: torch.dtype, take: Take = bulk_zeros
) -> Tensor:
    """`[count, 2, kv_heads, block_size, head_dim]`; of e4m3 if `dtype` is uint8.

    Args:
        take: memory on any device, to be filled.
    """
    chunk = torch.randn(_CHUNK_ELEMENTS)
    chunk = encode(chunk) if dtype is torch.uint8 else chunk.to(dtype)
    pages = take((count, 2, shape.kv_heads, BLOCK_SIZE, shape.head_dim), dtype)
    fill(pages, chunk.to(pages.device))
    return pages


def held_dtype(kv: KVType) -> torch.dtype:
    """Of the tensor of pages."""
    return getattr(torch, kv) if isinstance(kv, DType) else torch.uint8


def query_dtype(kv: KVType) -> torch.dtype:
    """Of queries to pages: theirs, or 16 bits where they hold less."""
    return getattr(torch, kv) if isinstance(kv, DType) else torch.float16


def code_shape(shape: HeadShape, kv: CodeType) -> PageShape:
    """Of quantized pages."""
    return PageShape(shape.kv_heads, BLOCK_SIZE, shape.head_dim, kv.bits)


def code_pages(shape: HeadShape, count: int, kv: CodeType, take: Take = bulk_zeros) -> Tensor:
    """uint8 `[count, page_bytes]`; `take` as of `float_pages`."""
    page = code_shape(shape, kv).quantized
    tokens = _CHUNK_PAGES * BLOCK_SIZE
    chunk = torch.empty(_CHUNK_PAGES, page.page_bytes, dtype=torch.uint8)
    k, v = torch.randn(2, tokens, shape.kv_heads, shape.head_dim)
    append_quantized(chunk, k, v, torch.arange(tokens), page)
    pages = take((count, page.page_bytes), torch.uint8)
    fill(pages, chunk.view(-1).to(pages.device))
    return pages

"""Pages of random keys and values for the kernel benchmark."""

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.narrow_floats import encode
from tandem.kernels.pages import PageShape
from tandem.kernels.quantized_pages import append_quantized
from tandem.probes.kernel_cases import BLOCK_SIZE, HeadShape
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType

_CHUNK_ELEMENTS = 1 << 20
_CHUNK_PAGES = 16


def float_pages(shape: HeadShape, count: int, dtype: torch.dtype) -> Tensor:
    """`[count, 2, kv_heads, block_size, head_dim]`; of e4m3 if `dtype` is uint8."""
    pages = bulk_zeros((count, 2, shape.kv_heads, BLOCK_SIZE, shape.head_dim), dtype)
    chunk = torch.randn(_CHUNK_ELEMENTS)
    chunk = encode(chunk) if dtype is torch.uint8 else chunk.to(dtype)
    for part in pages.view(-1).split(len(chunk)):
        part.copy_(chunk[: len(part)])
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


def code_pages(shape: HeadShape, count: int, kv: CodeType) -> Tensor:
    """uint8 `[count, page_bytes]`."""
    page = code_shape(shape, kv).quantized
    tokens = _CHUNK_PAGES * BLOCK_SIZE
    chunk = torch.empty(_CHUNK_PAGES, page.page_bytes, dtype=torch.uint8)
    k, v = torch.randn(2, tokens, shape.kv_heads, shape.head_dim)
    append_quantized(chunk, k, v, torch.arange(tokens), page)
    pages = bulk_zeros((count, page.page_bytes), torch.uint8)
    for part in pages.split(_CHUNK_PAGES):
        part.copy_(chunk[: len(part)])
    return pages

"""Moving blocks between pools whose pages hold other types: read in float32, appended anew."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels.pages import PageShape, gather_kv
from tandem.kernels.tier_kernels import TierKernels

_CHUNK_BYTES = 1 << 20  # of float32 at once, on either side

CopyBlocks = Callable[[Tensor, Tensor, Tensor, Tensor], None]
"""`TierKernels.copy_blocks`."""


def convert_blocks(
    src_pages: Tensor,  # [layers, num_src_blocks, ...page]
    src_ids: Tensor,  # int64 [n], on the device of both pools
    reader: TierKernels,
    dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; in place
    dst_ids: Tensor,  # int64 [n], on the device of both pools
    writer: TierKernels,
    *,
    chunk_bytes: int = _CHUNK_BYTES,
) -> None:
    """Copy whole blocks of all layers to a pool of another element type in the same memory.

    The target then holds what appending the source's values, as they are read, gives.

    Args:
        reader, writer: kernels of the source's and of the target's pages.
        chunk_bytes: of float32 keys and values at a time, but one block of a layer at least.
    """
    for sources, targets in _chunks(src_ids, dst_ids, reader.shape, chunk_bytes):
        chunk = _Chunk.of(sources, reader, targets, writer)
        for source, target in zip(src_pages, dst_pages, strict=True):
            chunk.convert(source, target)


def convert_to_host(
    src_pages: Tensor,  # [layers, num_src_blocks, ...page]; on a device
    src_ids: Tensor,  # int64 [n], on the host
    reader: TierKernels,
    dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; in host memory, in place
    dst_ids: Tensor,  # int64 [n], on the host
    writer: TierKernels,
    copy: CopyBlocks,
    *,
    chunk_bytes: int = _CHUNK_BYTES,
) -> None:
    """`convert_blocks` from a device to the host: on the device, whose queue goes on by itself;
    what crosses the link is the host's pages, byte for byte.

    Args:
        reader, writer: the device's kernels, of its own pages and of pages as the host's are.
        copy: copies blocks over the link without waiting.
    """
    device = src_pages.device
    for sources, targets in _chunks(src_ids, dst_ids, reader.shape, chunk_bytes):
        places = torch.arange(len(sources))
        chunk = _Chunk.of(_on(device, sources), reader, _on(device, places), writer)
        for layer, source in enumerate(src_pages):
            staged = _staging(dst_pages, len(places), device)
            chunk.convert(source, staged[0])
            copy(staged, places, dst_pages[layer : layer + 1], targets)


def convert_from_host(
    src_pages: Tensor,  # [layers, num_src_blocks, ...page]; in host memory
    src_ids: Tensor,  # int64 [n], on the host
    reader: TierKernels,
    dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; on a device, in place
    dst_ids: Tensor,  # int64 [n], on the host
    writer: TierKernels,
    copy: CopyBlocks,
    *,
    chunk_bytes: int = _CHUNK_BYTES,
) -> None:
    """`convert_blocks` from the host to a device, as `convert_to_host`.

    Args:
        reader, writer: the device's kernels, of pages as the host's are and of its own.
    """
    device = dst_pages.device
    for sources, targets in _chunks(src_ids, dst_ids, reader.shape, chunk_bytes):
        places = torch.arange(len(sources))
        chunk = _Chunk.of(_on(device, places), reader, _on(device, targets), writer)
        for layer, target in enumerate(dst_pages):
            staged = _staging(src_pages, len(places), device)
            copy(src_pages[layer : layer + 1], sources, staged, places)
            chunk.convert(staged[0], target)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Some blocks, in every layer: where they are read, and where they are written."""

    index: Tensor
    shape: PageShape
    planned: Tensor
    writer: TierKernels

    @staticmethod
    def of(sources: Tensor, reader: TierKernels, targets: Tensor, writer: TierKernels) -> "_Chunk":
        shape = reader.shape
        planned = writer.plan_append(_rows_of(targets, shape.block_size))
        return _Chunk(_rows_of(sources, 2 * shape.kv_heads), shape, planned, writer)

    def convert(self, source: Tensor, target: Tensor) -> None:
        """One layer's."""
        key, value = _read(source, self.index, self.shape)
        self.writer.append(target, key, value, self.planned)


def _chunks(
    src_ids: Tensor, dst_ids: Tensor, shape: PageShape, chunk_bytes: int
) -> Iterator[tuple[Tensor, Tensor]]:
    if not len(src_ids):  # else split makes a part of nothing
        return iter(())
    per_chunk = max(1, chunk_bytes // (shape.numel * 4))
    return zip(src_ids.split(per_chunk), dst_ids.split(per_chunk), strict=True)


def _on(device: torch.device, ids: Tensor) -> Tensor:
    return ids.to(device, non_blocking=True)


def _staging(pages: Tensor, count: int, device: torch.device) -> Tensor:
    """Room for some blocks of one layer: [1, count, ...page]."""
    return torch.empty((1, count, *pages.shape[2:]), dtype=pages.dtype, device=device)


def _rows_of(blocks: Tensor, per_block: int) -> Tensor:
    """Numbers of the parts of blocks, `per_block` in each: int64 [n * per_block]."""
    parts = torch.arange(per_block, device=blocks.device)
    return (blocks[:, None] * per_block + parts).view(-1)


def _read(pages: Tensor, index: Tensor, shape: PageShape) -> Tensor:
    """Keys and values of blocks: float32 [2, tokens, kv_heads, head_dim], contiguous."""
    size = shape.block_size
    values = gather_kv(pages, index, size, size, shape)
    values = values.view(-1, 2, shape.kv_heads, size, shape.head_dim)
    return values.permute(1, 0, 3, 2, 4).reshape(2, -1, shape.kv_heads, shape.head_dim)

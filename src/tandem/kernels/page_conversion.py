"""Moving blocks between pools whose pages hold other types: read in float32, appended anew."""

import torch
from torch import Tensor

from tandem.kernels.pages import PageShape, gather_kv
from tandem.kernels.tier_kernels import TierKernels

_CHUNK_BYTES = 1 << 20  # of float32 at once, on either side


def convert_blocks(
    src_pages: Tensor,  # [layers, num_src_blocks, ...page]
    src_ids: Tensor,  # int64 [n], on the device of src_pages
    reader: TierKernels,
    dst_pages: Tensor,  # [layers, num_dst_blocks, ...page]; in place
    dst_ids: Tensor,  # int64 [n], on the device of dst_pages
    writer: TierKernels,
    *,
    chunk_bytes: int = _CHUNK_BYTES,
) -> None:
    """Copy whole blocks of all layers to a pool of another element type.

    The target then holds what appending the source's values, as they are read, gives.

    Args:
        reader, writer: the kernels of the source's and of the target's tier.
        chunk_bytes: of float32 keys and values at a time, but one block of a layer at least.
    """
    shape = reader.shape
    per_chunk = max(1, chunk_bytes // (shape.numel * 4))
    for sources, targets in zip(src_ids.split(per_chunk), dst_ids.split(per_chunk), strict=True):
        index = _rows_of(sources, 2 * shape.kv_heads)
        planned = writer.plan_append(_rows_of(targets, shape.block_size))
        for source, target in zip(src_pages, dst_pages, strict=True):
            key, value = _read(source, index, shape).to(target.device)
            writer.append(target, key, value, planned)


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

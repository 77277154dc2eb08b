"""Appending to pages, copying them, and what is done to states, by the compiled kernels.

Import this module only if `native.available()`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_pool import NativePool, Pending, SignalPoint


def append_kv(
    pool: NativePool,
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; contiguous, written in place
    k: Tensor,  # [t, kv_heads, head_dim]; a token's heads contiguous
    v: Tensor,  # [t, kv_heads, head_dim]; likewise, of the same element type
    slots: Tensor,  # int64 [t]; each slot at most once
    *,
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[Tensor]:
    """Start to write keys and values into their slots, rounded to the pages' element type.

    Returns:
        The pages, once done.

    Raises:
        ValueError: tensors that do not fit each other, or a slot that does not exist; nothing was
            started.
    """
    task = _native.append(pool.handle, pages, k, v, slots)
    task.submit(after, then)
    return Pending(task, pages)


def copy_blocks(
    pool: NativePool,
    src_pages: Tensor,  # [layers, num_src_blocks, 2, kv_heads, block_size, head_dim]; contiguous
    src_ids: Tensor,  # int64 [n]
    dst_pages: Tensor,  # [layers, num_dst_blocks, 2, kv_heads, block_size, head_dim]; in place
    dst_ids: Tensor,  # int64 [n]; each at most once
    *,
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[Tensor]:
    """Start to copy whole blocks of all layers between pools in host memory, past the caches.

    Blocks that follow each other in both pools are copied as one.

    Returns:
        The target's pages, once done.

    Raises:
        ValueError: pools of another layout, a block that does not exist, is written twice, or is
            read and written; nothing was started.
    """
    task = _native.copy_blocks(pool.handle, src_pages, src_ids, dst_pages, dst_ids)
    task.submit(after, then)
    return Pending(task, dst_pages)


def copy_now(
    pool: NativePool,
    src_pages: Tensor,  # [layers, num_src_blocks, 2, kv_heads, block_size, head_dim]; contiguous
    src_ids: Tensor,  # int64 [n]
    dst_pages: Tensor,  # [layers, num_dst_blocks, 2, kv_heads, block_size, head_dim]; in place
    dst_ids: Tensor,  # int64 [n]; each at most once
) -> None:
    """`copy_blocks`, to its end, the calling thread taking part.

    Raises:
        ValueError: as `copy_blocks`; nothing was written.
    """
    _native.copy_blocks(pool.handle, src_pages, src_ids, dst_pages, dst_ids).run()


def apply_sinks(
    pool: NativePool,
    state: AttentionOutput,  # out [t, heads, head_dim], lse [t, heads]; contiguous, in place
    sinks: Tensor,  # float32 [heads]
    *,
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[AttentionOutput]:
    """Start to add sinks to merged attention; means what `state.apply_sinks` means.

    Raises:
        ValueError: tensors that do not fit each other; nothing was started.
    """
    task = _native.apply_sinks(pool.handle, *state, sinks)
    task.submit(after, then)
    return Pending(task, state)


def merge_states(
    pool: NativePool,
    a: AttentionOutput,  # out [t, heads, head_dim], lse [t, heads]; contiguous
    b: AttentionOutput,  # likewise
    *,
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[AttentionOutput]:
    """Start to merge attention over disjoint sets of keys; means what `state.merge_states` means.

    Raises:
        ValueError: tensors that do not fit each other; nothing was started.
    """
    result = AttentionOutput(torch.empty_like(a.out), torch.empty_like(a.lse))
    task = _native.merge(pool.handle, *a, *b, *result)
    task.submit(after, then)
    return Pending(task, result)

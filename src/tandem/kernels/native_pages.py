"""Appending to pages and merging of states by the compiled kernels.

Import this module only if `native.available()`.
"""

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
    after: SignalPoint | None = None,
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


def append_now(
    pool: NativePool,
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; contiguous, written in place
    k: Tensor,  # [t, kv_heads, head_dim]; a token's heads contiguous
    v: Tensor,  # [t, kv_heads, head_dim]; likewise, of the same element type
    slots: Tensor,  # int64 [t]; each slot at most once
) -> None:
    """`append_kv`, to its end, the calling thread taking part.

    Raises:
        ValueError: tensors that do not fit each other, or a slot that does not exist; nothing was
            written.
    """
    task = _native.append(pool.handle, pages, k, v, slots)
    task.run()


def merge_states(
    pool: NativePool,
    a: AttentionOutput,  # out [t, heads, head_dim], lse [t, heads]; contiguous
    b: AttentionOutput,  # likewise
    *,
    after: SignalPoint | None = None,
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

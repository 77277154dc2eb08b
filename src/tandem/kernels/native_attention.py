"""Attention by the compiled kernels; means what `kernels.attention` means.

Two kernels share one interface: decode, for rows of a few query tokens, reads memory as fast as it
can; prefill, for any others, multiplies as fast as it can.

Import this module only if `native.available()`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels import _native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.native_pool import NativePool, Pending, SignalPoint
from tandem.kernels.pages import PageShape
from tandem.plan.binding import TierAttention

MAX_DECODE_TOKENS = 8  # of a row, that the decode kernel takes


def is_decode(attention: TierAttention) -> bool:
    """Whether every row has at most `MAX_DECODE_TOKENS` query tokens; longer ones are prefill."""
    return int(np.diff(attention.query_start).max(initial=0)) <= MAX_DECODE_TOKENS


@dataclass(frozen=True, slots=True)
class NativeBatch:
    """One tier's attention, divided over threads; built once per step, used by every layer.

    Attributes:
        plan: what is read and by which part of the work; its type says which kernel runs.
        shape: of the pages that it is for.
        heads: query heads.
    """

    plan: _native.AttentionPlan | _native.PrefillPlan
    shape: PageShape
    heads: int

    @staticmethod
    def from_binding(
        attention: TierAttention,
        shape: PageShape,
        heads: int,
        num_threads: int,
        window: int = 0,
    ) -> "NativeBatch":
        """Divide one tier's part of a lane into runs of equal work.

        The decode kernel runs if all rows are short enough (`is_decode`).

        Args:
            window: how many positions a token sees, its own included; 0 for all. Blocks that lie
                wholly before every token's window are not read.

        Raises:
            ValueError: the arrays contradict each other, or a head_dim that is no multiple of 4.
        """
        plan_type = _native.AttentionPlan if is_decode(attention) else _native.PrefillPlan
        plan = plan_type(
            heads=heads,
            kv_heads=shape.kv_heads,
            block_size=shape.block_size,
            head_dim=shape.head_dim,
            query_start=attention.query_start,
            positions=attention.positions,
            block_table=attention.block_table,
            block_index=attention.block_index,
            token_index=attention.token_index,
            num_threads=num_threads,
            window=window,
            code_bits=shape.code_bits,
        )
        return NativeBatch(plan, shape, heads)

    @property
    def num_tokens(self) -> int:
        """Query tokens that take part."""
        return self.plan.num_tokens


def submit_attention(
    pool: NativePool,
    q: Tensor,  # [T, heads, head_dim]; a token's heads contiguous; float32, float16 or bfloat16
    pages: Tensor,  # one layer of pages of `batch.shape`; contiguous
    batch: NativeBatch,
    scale: float,
    *,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,  # [heads] float32; see `paged_attention`
    after: Sequence[SignalPoint] = (),
    then: SignalPoint | None = None,
) -> Pending[AttentionOutput]:
    """Start attention once `after` is reached, and raise `then` at its end, without Python.

    `then` is raised also if the work failed; `wait` tells. Slots that no query may see are not
    read for the result.

    Raises:
        ValueError: tensors that do not fit the batch; nothing was started.
    """
    result = _empty_result(batch)
    task = attention_task(result, pool, q, pages, batch, scale, soft_cap=soft_cap, sinks=sinks)
    task.submit(after, then)
    return Pending(task, result)


def paged_attention(
    pool: NativePool,
    q: Tensor,  # [T, heads, head_dim]; a token's heads contiguous; float32, float16 or bfloat16
    pages: Tensor,  # one layer of pages of `batch.shape`; contiguous
    batch: NativeBatch,
    scale: float,
    *,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,  # [heads] float32
) -> AttentionOutput:
    """Attention now, the calling thread taking part.

    Args:
        soft_cap: scores become `cap * tanh(score / cap)`; 0 for none.
        sinks: as `state.apply_sinks` of the result: only where this is all of the attention.

    Returns:
        out [t, heads, head_dim], lse [t, heads], t = `batch.num_tokens`, in the batch's order.

    Raises:
        ValueError: tensors that do not fit the batch.
    """
    result = _empty_result(batch)
    attention_task(result, pool, q, pages, batch, scale, soft_cap=soft_cap, sinks=sinks).run()
    return result


def attention_task(
    result: AttentionOutput,  # out [t, heads, head_dim], lse [t, heads]; float32, contiguous
    pool: NativePool,
    q: Tensor,  # [T, heads, head_dim]; a token's heads contiguous; float32, float16 or bfloat16
    pages: Tensor,  # one layer of pages of `batch.shape`; contiguous
    batch: NativeBatch,
    scale: float,
    *,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,  # [heads] float32
) -> _native.Task:
    """Attention into given memory, still to be run or submitted.

    Raises:
        ValueError: tensors that do not fit the batch.
    """
    return _native.attention(
        pool.handle, batch.plan, q, pages, *result, scale, soft_cap, pool.isa, sinks
    )


def attend_once(
    pool: NativePool,
    q: Tensor,  # [T, heads, head_dim]; a token's heads contiguous; float32, float16 or bfloat16
    pages: Tensor,  # [num_blocks, 2, kv_heads, block_size, head_dim]; contiguous; likewise
    attention: TierAttention,
    scale: float,
) -> AttentionOutput:
    """`paged_attention`, planned for this call alone."""
    shape = PageShape.of(pages)
    batch = NativeBatch.from_binding(attention, shape, q.shape[1], pool.num_threads)
    return paged_attention(pool, q, pages, batch, scale)


def _empty_result(batch: NativeBatch) -> AttentionOutput:
    out = torch.empty(batch.num_tokens, batch.heads, batch.shape.head_dim)
    return AttentionOutput(out, torch.empty(batch.num_tokens, batch.heads))

"""Attention of queries over paged keys and values of one layer in one tier (torch reference)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.attention_plan import DecodeGroup, Piece, Span, plan_attention
from tandem.kernels.dense import AttentionOutput, dense_attention
from tandem.kernels.pages import PageShape, gather_kv
from tandem.kernels.state import apply_sinks, merge_states
from tandem.kernels.upload import upload
from tandem.plan.binding import TierAttention


@dataclass(frozen=True, slots=True)
class DecodeTensors:
    """A `DecodeGroup` on the device.

    Attributes:
        tokens: int64 [rows]; None if they are all tokens of the batch in order.
        piece: slots in each of the pieces that blocks are divided into.
        gather: int64 [2 * rows * kv_heads * pieces].
        slots: slots to read of every piece.
        num_rows, num_keys: rows, and keys of the longest.
        unused: int64 [u]; gathered slots to clear, None if rows are equally long.
        mask: float32 [rows, 1, 1, num_keys]; 0 or -inf, None if rows are equally long.
    """

    tokens: Tensor | None
    piece: int
    gather: Tensor
    slots: int
    num_rows: int
    num_keys: int
    unused: Tensor | None
    mask: Tensor | None


@dataclass(frozen=True, slots=True)
class SpanTensors:
    """A `Span` on the device: int64 [2 * kv_heads * blocks] and what attends to it."""

    gather: Tensor
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One tier's part of a lane's attention on a device; built once per step, used by every layer.

    Attributes:
        token_index: int64 [t]; the lane's tokens that take part, None for all of them.
        num_tokens: t.
        covered: every token sees a key; otherwise some results are out 0, lse -inf.
        decode, spans: how keys are read (see `attention_plan`).
        shape: of the pages that it is for.
    """

    token_index: Tensor | None
    num_tokens: int
    covered: bool
    decode: tuple[DecodeTensors, ...]
    spans: tuple[SpanTensors, ...]
    shape: PageShape

    @staticmethod
    def from_binding(
        att: TierAttention, device: torch.device, shape: PageShape
    ) -> "AttentionBatch":
        """Plan the reads of pages of `shape` and bring the plan to `device`, without waiting.

        Keys are visible to a query at or after their position. Positions within a row ascend.
        """
        plan = plan_attention(att, shape)
        return AttentionBatch(
            token_index=None if att.token_index is None else upload(att.token_index, device),
            num_tokens=plan.num_tokens,
            covered=plan.covered,
            decode=tuple(_decode_tensors(g, plan.num_tokens, device) for g in plan.decode),
            spans=tuple(_span_tensors(s, device) for s in plan.spans),
            shape=shape,
        )


def paged_attention(
    q: Tensor,  # [T, heads, head_dim]; all of the lane's tokens, model element type
    pages: Tensor,  # one layer of pages of `batch.shape`; contiguous
    batch: AttentionBatch,
    scale: float,
    sinks: Tensor | None = None,  # [heads] float32
) -> AttentionOutput:
    """Causal attention of the batch's tokens over this tier's keys, in fp32.

    Slots that no query may see (not yet written, of a block's unused end) may hold anything,
    also inf and nan, and do not influence the result. `sinks` (see `state.apply_sinks`) may be
    given where this tier holds all of the keys.

    Returns:
        out [t, heads, head_dim], lse [t, heads], t = `batch.num_tokens`, in the batch's order.
    """
    if batch.token_index is not None:
        q = q.index_select(0, batch.token_index)
    result = _attend(q.float(), pages, batch, scale)
    return result if sinks is None else AttentionOutput(*apply_sinks(*result, sinks))


def _attend(q: Tensor, pages: Tensor, batch: AttentionBatch, scale: float) -> AttentionOutput:
    if len(batch.decode) == 1 and batch.decode[0].tokens is None:
        return _attend_group(q, pages, batch.decode[0], scale, batch.shape)
    result = _empty_output(q, batch.covered)
    for group in batch.decode:
        part = _attend_group(q, pages, group, scale, batch.shape)
        assert group.tokens is not None
        result.out.index_copy_(0, group.tokens, part.out)
        result.lse.index_copy_(0, group.tokens, part.lse)
    for span in batch.spans:
        _attend_span(q, pages, span, scale, result, batch.shape)
    return result


def _empty_output(q: Tensor, covered: bool) -> AttentionOutput:
    if covered:
        return AttentionOutput(torch.empty_like(q), q.new_empty(q.shape[:2]))
    return AttentionOutput(torch.zeros_like(q), q.new_full(q.shape[:2], -torch.inf))


def _attend_group(
    q: Tensor, pages: Tensor, group: DecodeTensors, scale: float, shape: PageShape
) -> AttentionOutput:
    kv_heads, head_dim = shape.kv_heads, shape.head_dim
    rows = q if group.tokens is None else q.index_select(0, group.tokens)
    gathered = gather_kv(pages, group.gather, group.piece, group.slots, shape)
    if group.unused is not None:
        gathered.view(-1, head_dim).index_fill_(0, group.unused, 0.0)
    k, v = gathered.view(2, group.num_rows, kv_heads, -1, head_dim)[:, :, :, : group.num_keys]
    # A kv head's group of queries becomes the rows of one small product.
    rows = rows.reshape(group.num_rows, kv_heads, -1, head_dim)
    out, lse = dense_attention(rows, k, v, scale, mask=group.mask)
    return AttentionOutput(
        out.reshape(group.num_rows, -1, head_dim), lse.reshape(group.num_rows, -1)
    )


def _attend_span(
    q: Tensor,
    pages: Tensor,
    span: SpanTensors,
    scale: float,
    result: AttentionOutput,
    shape: PageShape,
) -> None:
    kv_heads, size = shape.kv_heads, shape.block_size
    gathered = gather_kv(pages, span.gather, size, size, shape)
    k, v = gathered.view(2, kv_heads, 1, -1, shape.head_dim)
    for piece in span.pieces:
        rows = q[piece.tokens].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
        keys, values = k[:, :, piece.keys], v[:, :, piece.keys]
        out, lse = dense_attention(rows, keys, values, scale, causal=piece.causal)
        out, lse = out.permute(2, 0, 1, 3), lse.permute(2, 0, 1)
        target_out = result.out[piece.tokens].unflatten(1, (kv_heads, -1))
        target_lse = result.lse[piece.tokens].unflatten(1, (kv_heads, -1))
        if not piece.first:
            out, lse = merge_states(target_out, target_lse, out, lse)
        target_out.copy_(out)
        target_lse.copy_(lse)


def _decode_tensors(group: DecodeGroup, num_tokens: int, device: torch.device) -> DecodeTensors:
    num_rows, num_keys = len(group.tokens), int(group.num_keys.max())
    unused = mask = None
    if int(group.num_keys.min()) != num_keys:
        hidden = np.arange(num_keys) >= group.num_keys[:, None, None, None]
        masked = np.where(hidden, np.float32(-np.inf), np.float32(0.0))
        unused, mask = upload(group.unused, device), upload(masked, device)
    return DecodeTensors(
        # Tokens of a group ascend, so as many as the batch has are all of them.
        tokens=None if num_rows == num_tokens else upload(group.tokens, device),
        piece=group.piece,
        gather=upload(group.gather, device),
        slots=group.slots,
        num_rows=num_rows,
        num_keys=num_keys,
        unused=unused,
        mask=mask,
    )


def _span_tensors(span: Span, device: torch.device) -> SpanTensors:
    return SpanTensors(upload(span.gather, device), span.pieces)

"""Attention of queries over paged keys and values of one layer in one tier (torch reference)."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.attention_plan import DecodeGroup, Piece, Span, plan_attention
from tandem.kernels.attention_windows import WindowSpan
from tandem.kernels.dense import AttentionOutput, ScoreRule, dense_attention
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
        mask: float32 [rows, 1, 1, num_keys]; 0 or -inf, None if rows see all of num_keys.
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
class WindowTensors:
    """A `WindowSpan` on the device: int64 [2 * kv_heads * blocks], [tokens, 1] and [tokens, 1].

    Attributes:
        num_keys: up to the last that any of the tokens sees.
    """

    tokens: slice
    gather: Tensor
    first: Tensor
    end: Tensor
    num_keys: int


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One tier's part of a lane's attention on a device; built once per step, used by every layer.

    Attributes:
        token_index: int64 [t]; the lane's tokens that take part, None for all of them.
        num_tokens: t.
        covered: as in `AttentionPlan`.
        decode, spans, windows: how keys are read (see `attention_plan`).
        shape: of the pages that it is for.
    """

    token_index: Tensor | None
    num_tokens: int
    covered: bool
    decode: tuple[DecodeTensors, ...]
    spans: tuple[SpanTensors, ...]
    windows: tuple[WindowTensors, ...]
    shape: PageShape

    @staticmethod
    def from_binding(
        att: TierAttention, device: torch.device, shape: PageShape, window: int = 0
    ) -> "AttentionBatch":
        """Plan the reads of pages of `shape` and bring the plan to `device`, without waiting.

        Keys are visible to a query at or after their position, if `window` is not 0 only as long
        as they are among the last `window` positions. Positions within a row ascend.
        """
        plan = plan_attention(att, shape, window)
        return AttentionBatch(
            token_index=None if att.token_index is None else upload(att.token_index, device),
            num_tokens=plan.num_tokens,
            covered=plan.covered,
            decode=tuple(_decode_tensors(g, plan.num_tokens, device) for g in plan.decode),
            spans=tuple(_span_tensors(s, device) for s in plan.spans),
            windows=tuple(_window_tensors(w, device) for w in plan.windows),
            shape=shape,
        )


def paged_attention(
    q: Tensor,  # [T, heads, head_dim]; all of the lane's tokens, model element type
    pages: Tensor,  # one layer of pages of `batch.shape`; contiguous
    batch: AttentionBatch,
    scale: float,
    sinks: Tensor | None = None,  # [heads] float32
    soft_cap: float = 0.0,
) -> AttentionOutput:
    """Causal attention of the batch's tokens over this tier's keys, in fp32.

    Slots that no query may see (not yet written, of a block's unused end) may hold anything,
    also inf and nan, and do not influence the result. `sinks` (see `state.apply_sinks`) may be
    given where this tier holds all of the keys. `soft_cap`: scores become
    `cap * tanh(score / cap)`; 0 for none.

    Returns:
        out [t, heads, head_dim], lse [t, heads], t = `batch.num_tokens`, in the batch's order.
    """
    if batch.token_index is not None:
        q = q.index_select(0, batch.token_index)
    result = _attend(q.float(), pages, batch, ScoreRule(scale, soft_cap))
    return result if sinks is None else AttentionOutput(*apply_sinks(*result, sinks))


def _attend(q: Tensor, pages: Tensor, batch: AttentionBatch, rule: ScoreRule) -> AttentionOutput:
    if len(batch.decode) == 1 and batch.decode[0].tokens is None:
        return _attend_group(q, pages, batch.decode[0], rule, batch.shape)
    result = _empty_output(q, batch.covered)
    for group in batch.decode:
        part = _attend_group(q, pages, group, rule, batch.shape)
        assert group.tokens is not None
        result.out.index_copy_(0, group.tokens, part.out)
        result.lse.index_copy_(0, group.tokens, part.lse)
    for span in batch.spans:
        _attend_span(q, pages, span, rule, result, batch.shape)
    for window in batch.windows:
        _attend_window(q, pages, window, rule, result, batch.shape)
    return result


def _empty_output(q: Tensor, covered: bool) -> AttentionOutput:
    if covered:
        return AttentionOutput(torch.empty_like(q), q.new_empty(q.shape[:2]))
    return AttentionOutput(torch.zeros_like(q), q.new_full(q.shape[:2], -torch.inf))


def _attend_group(
    q: Tensor, pages: Tensor, group: DecodeTensors, rule: ScoreRule, shape: PageShape
) -> AttentionOutput:
    kv_heads, head_dim = shape.kv_heads, shape.head_dim
    rows = q if group.tokens is None else q.index_select(0, group.tokens)
    gathered = gather_kv(pages, group.gather, group.piece, group.slots, shape)
    if group.unused is not None:
        gathered.view(-1, head_dim).index_fill_(0, group.unused, 0.0)
    k, v = gathered.view(2, group.num_rows, kv_heads, -1, head_dim)[:, :, :, : group.num_keys]
    # A kv head's group of queries becomes the rows of one small product.
    rows = rows.reshape(group.num_rows, kv_heads, -1, head_dim)
    out, lse = dense_attention(rows, k, v, rule, mask=group.mask)
    return AttentionOutput(
        out.reshape(group.num_rows, -1, head_dim), lse.reshape(group.num_rows, -1)
    )


def _attend_span(
    q: Tensor,
    pages: Tensor,
    span: SpanTensors,
    rule: ScoreRule,
    result: AttentionOutput,
    shape: PageShape,
) -> None:
    kv_heads, size = shape.kv_heads, shape.block_size
    gathered = gather_kv(pages, span.gather, size, size, shape)
    k, v = gathered.view(2, kv_heads, 1, -1, shape.head_dim)
    for piece in span.pieces:
        rows = q[piece.tokens].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
        keys, values = k[:, :, piece.keys], v[:, :, piece.keys]
        out, lse = dense_attention(rows, keys, values, rule, causal=piece.causal)
        _write(result, piece.tokens, out, lse, merges=not piece.first)


def _attend_window(
    q: Tensor,
    pages: Tensor,
    window: WindowTensors,
    rule: ScoreRule,
    result: AttentionOutput,
    shape: PageShape,
) -> None:
    kv_heads, size = shape.kv_heads, shape.block_size
    gathered = gather_kv(pages, window.gather, size, size, shape)
    k, v = gathered.view(2, kv_heads, 1, -1, shape.head_dim)[:, :, :, : window.num_keys]
    keys = torch.arange(window.num_keys, device=q.device)
    hidden = (keys < window.first) | (keys >= window.end)
    mask = torch.zeros(hidden.shape, device=q.device).masked_fill_(hidden, -torch.inf)
    rows = q[window.tokens].unflatten(1, (kv_heads, -1)).permute(1, 2, 0, 3)
    out, lse = dense_attention(rows, k, v, rule, mask=mask[None, None])
    _write(result, window.tokens, out, lse, merges=True)


def _write(
    result: AttentionOutput,
    tokens: slice,
    out: Tensor,  # [kv_heads, group, n, head_dim]
    lse: Tensor,  # [kv_heads, group, n]
    *,
    merges: bool,
) -> None:
    out, lse = out.permute(2, 0, 1, 3), lse.permute(2, 0, 1)
    target_out = result.out[tokens].unflatten(1, out.shape[1:3])
    target_lse = result.lse[tokens].unflatten(1, out.shape[1:3])
    if merges:
        out, lse = merge_states(target_out, target_lse, out, lse)
    target_out.copy_(out)
    target_lse.copy_(lse)


def _decode_tensors(group: DecodeGroup, num_tokens: int, device: torch.device) -> DecodeTensors:
    num_rows, num_keys = len(group.tokens), int(group.num_keys.max())
    unused = mask = None
    if len(group.unused):
        unused = upload(group.unused, device)
    if unused is not None or group.num_hidden.any():
        keys, count = np.arange(num_keys), group.num_keys[:, None, None, None]
        hidden = (keys >= count) | (keys < group.num_hidden[:, None, None, None])
        mask = upload(np.where(hidden, np.float32(-np.inf), np.float32(0.0)), device)
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


def _window_tensors(window: WindowSpan, device: torch.device) -> WindowTensors:
    return WindowTensors(
        window.tokens,
        upload(window.gather, device),
        upload(window.seen.first[:, None], device),
        upload(window.seen.end[:, None], device),
        int(window.seen.end[-1]),
    )

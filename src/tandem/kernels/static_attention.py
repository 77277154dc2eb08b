"""Decode attention that takes lengths from where they lie, in torch: what a graph can replay."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput, ScoreRule, plain_attention
from tandem.kernels.pages import PageShape, gather_kv


@dataclass(frozen=True, slots=True)
class StaticBatch:
    """A query of each row, by numbers that may change where they lie.

    Attributes:
        position: int64 [rows], of each row's query.
        table: int32 [rows, blocks]; every entry is some block's id, beyond a row's own any.
        window: positions that a token sees; 0: all before it.
    """

    position: Tensor
    table: Tensor
    window: int

    @property
    def num_tokens(self) -> int:
        """A query of each row."""
        return len(self.position)


def static_attention(
    q: Tensor,  # [rows, heads, head_dim]
    pages: Tensor,  # one layer of pages of `shape`
    batch: StaticBatch,
    shape: PageShape,
    scale: float,
    soft_cap: float,
) -> AttentionOutput:
    """Attention of each row's query to keys 0 to its position: all blocks of the table are read,
    and what lies beyond is masked. For tests: its cost grows with the table, not with the rows.
    """
    rows, kv_heads = batch.num_tokens, shape.kv_heads
    device = pages.device
    part = torch.arange(2, device=device)[:, None, None, None]
    head = torch.arange(kv_heads, device=device)[:, None]
    place = (batch.table.long()[None, :, None, :] * 2 + part) * kv_heads + head
    held = gather_kv(pages, place.view(-1), shape.block_size, shape.block_size, shape)
    k, v = held.view(2, rows, kv_heads, -1, shape.head_dim)
    keys = torch.arange(k.shape[2], device=device)
    hidden = keys > batch.position[:, None]
    if batch.window:
        hidden |= keys <= batch.position[:, None] - batch.window
    mask = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, -torch.inf)
    query = q.float().view(rows, kv_heads, -1, shape.head_dim)
    rule = ScoreRule(scale, soft_cap)
    out, lse = plain_attention(query, k, v, rule, mask=mask[:, None, None])
    return AttentionOutput(out.reshape(q.shape), lse.reshape(q.shape[:2]))

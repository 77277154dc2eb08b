"""Attention to a lane's pages in float64, by which a GPU's kernels are judged."""

from itertools import pairwise

import torch
from torch import Tensor

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape, gather_kv
from tandem.plan.binding import TierAttention


def exact_attention(
    query: Tensor,
    pages: Tensor,
    lane: TierAttention,
    shape: PageShape,
    scale: float,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
) -> AttentionOutput:
    """Softmax attention of every query to what its row's pages hold up to its position.

    Args:
        query: [tokens, heads, head_dim], of all of the lane's tokens. pages: one layer's, on the
            host. window: most keys that a query sees; 0: all. soft_cap: what bounds scores; 0:
            nothing.

    Returns:
        out [tokens, heads, head_dim], lse [tokens, heads]; float64.
    """
    assert lane.token_index is None
    out, lse, starts = [], [], lane.query_start.tolist()
    for row, (first, end) in enumerate(pairwise(starts)):
        positions = torch.from_numpy(lane.positions[first:end].astype("int64"))
        context = int(positions.max()) + 1
        blocks = torch.from_numpy(lane.block_table[row].astype("int64"))
        keys, values = _held(pages, blocks[: -(-context // shape.block_size)], shape)[:, :context]
        own, group = query[first:end].double(), query.shape[1] // shape.kv_heads
        scores = torch.einsum("qhd,khd->qhk", own, keys.repeat_interleave(group, 1)) * scale
        if soft_cap:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        age = positions[:, None] - torch.arange(context)
        unseen = (age < 0) | (age >= window) if window else age < 0
        scores.masked_fill_(unseen[:, None, :], -torch.inf)
        values = values.repeat_interleave(group, 1)
        out.append(torch.einsum("qhk,khd->qhd", scores.softmax(-1), values))
        lse.append(scores.logsumexp(-1))
    return AttentionOutput(torch.cat(out), torch.cat(lse))


def _held(pages: Tensor, blocks: Tensor, shape: PageShape) -> Tensor:
    """Keys and values of a row's blocks, in order: float64 [2, tokens, kv_heads, head_dim]."""
    parts, size = 2 * shape.kv_heads, shape.block_size
    index = (blocks[:, None] * parts + torch.arange(parts)).flatten()
    held = gather_kv(pages, index, size, size, shape).double()
    held = held.view(len(blocks), 2, shape.kv_heads, size, shape.head_dim)
    return held.permute(1, 0, 3, 2, 4).flatten(1, 2)

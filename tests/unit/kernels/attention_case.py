"""Sequences whose KV lies in shuffled pages of one or two tiers, and their exact attention."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.attention import AttentionBatch, AttentionOutput, paged_attention
from tandem.kernels.narrow_floats import encode
from tandem.kernels.pages import PageShape, append_planned, plan_append
from tandem.kernels.quantized_pages import pair_rows
from tandem.plan.binding import TierAttention

CPU = torch.device("cpu")
PADDING_INDEX = 1 << 30


@dataclass(frozen=True)
class Row:
    """A sequence with `context` known tokens of which the last `queries` attend."""

    context: int
    queries: int


@dataclass(frozen=True)
class AttentionCase:
    """Rows in batch order; keys and values [context, kv_heads, head_dim] of each.

    Attributes:
        dtype: of pages of floats; uint8: e4m3.
        sources: what is appended to the pages instead of `keys` and `values`, if they round it.
    """

    rows: list[Row]
    shape: PageShape
    query: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    dtype: torch.dtype
    sources: tuple[list[Tensor], list[Tensor]] | None = None

    @property
    def appended(self) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values as the pages are given them."""
        return self.sources or (self.keys, self.values)

    @property
    def scale(self) -> float:
        return self.shape.head_dim**-0.5

    def positions(self) -> list[list[int]]:
        return [list(range(r.context - r.queries, r.context)) for r in self.rows]


def make_case(
    rows: Sequence[tuple[int, int]],
    *,
    kv_heads: int = 2,
    group: int = 1,
    head_dim: int = 8,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> AttentionCase:
    """Random queries, keys and values for (context, queries) rows."""
    random = torch.Generator().manual_seed(seed)
    ordered = sorted((Row(*r) for r in rows), key=lambda r: r.queries != 1)

    def draw(tokens: int, heads: int) -> Tensor:
        return torch.randn(tokens, heads, head_dim, generator=random).to(dtype)

    return AttentionCase(
        rows=ordered,
        shape=PageShape(kv_heads, block_size, head_dim),
        query=draw(sum(r.queries for r in ordered), kv_heads * group),
        keys=[draw(r.context, kv_heads) for r in ordered],
        values=[draw(r.context, kv_heads) for r in ordered],
        dtype=dtype,
    )


def exact_attention(
    case: AttentionCase,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
) -> AttentionOutput:
    """Softmax attention of every query in float64; 0: no window, no cap.

    Args:
        sinks: [heads]; logits of a further key per head whose value is 0.
    """
    out, lse, start = [], [], 0
    for row, keys, values, positions in zip(
        case.rows, case.keys, case.values, case.positions(), strict=True
    ):
        query = case.query[start : start + row.queries].double()
        group = query.shape[1] // case.shape.kv_heads
        wide_keys = keys.double().repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->qhk", query, wide_keys) * case.scale
        if soft_cap:
            scores = soft_cap * torch.tanh(scores / soft_cap)
        age = torch.tensor(positions)[:, None] - torch.arange(row.context)
        unseen = (age < 0) | (age >= window) if window else age < 0
        scores.masked_fill_(unseen[:, None, :], -torch.inf)
        wide_values = values.double().repeat_interleave(group, 1)
        if sinks is not None:
            joined = sinks.double()[None, :, None].expand(len(query), -1, 1)
            scores = torch.cat((scores, joined), 2)
            wide_values = torch.cat((wide_values, torch.zeros_like(wide_values[:1])))
        out.append(torch.einsum("qhk,khd->qhd", scores.softmax(-1), wide_values))
        lse.append(scores.logsumexp(-1))
        start += row.queries
    return AttentionOutput(torch.cat(out), torch.cat(lse))


def garbage_pages(case: AttentionCase, count: int, garbage: float) -> Tensor:
    """Pages of which no slot is written; the codes of quantized ones are 255, or 15."""
    shape = case.shape
    if not shape.code_bits:
        wide = (count, 2, shape.kv_heads, shape.block_size, shape.head_dim)
        filled = torch.full(wide, garbage)
        return encode(filled) if case.dtype is torch.uint8 else filled.to(case.dtype)
    pages = torch.full((count, shape.quantized.page_bytes), 255, dtype=torch.uint8)
    pair_rows(pages, shape.quantized).fill_(garbage)
    return pages


def tier_attention(
    case: AttentionCase,
    blocks_of_row: list[list[int]] | None = None,
    *,
    garbage: float = torch.nan,
    seed: int = 0,
    select: bool = False,
    sinks: Tensor | None = None,
    window: int = 0,
    soft_cap: float = 0.0,
) -> tuple[AttentionOutput, np.ndarray]:
    """Attention over a tier that holds the given logical blocks of each row (None: all).

    Slots without a token of these rows hold `garbage`; so does block 0, to which padding points.

    Returns:
        The result, and the tokens it is of; rows without a block in the tier do not take part.
    """
    size = case.shape.block_size
    held = blocks_of_row or [list(range(-(-r.context // size))) for r in case.rows]
    members = [i for i, blocks in enumerate(held) if blocks]
    total = sum(len(held[i]) for i in members) + 1
    ids = list(1 + np.random.default_rng(seed).permutation(total - 1))
    pages = garbage_pages(case, total, garbage)
    keys, values = case.appended
    width = max(len(held[i]) for i in members)
    table = np.zeros((len(members), width), np.int32)
    index = np.full((len(members), width), PADDING_INDEX, np.int32)
    for line, i in enumerate(members):
        for column, block in enumerate(held[i]):
            table[line, column], index[line, column] = ids.pop(), block
            tokens = range(block * size, min((block + 1) * size, case.rows[i].context))
            slots = torch.tensor([int(table[line, column]) * size + t % size for t in tokens])
            planned = plan_append(slots, case.shape)
            append_planned(pages, keys[i][tokens], values[i][tokens], planned, case.shape)
    starts = np.cumsum([0, *(r.queries for r in case.rows)])
    tokens = np.concatenate([np.arange(starts[i], starts[i + 1]) for i in members])
    attention = TierAttention(
        token_index=tokens if select else None,
        query_start=np.cumsum([0, *(case.rows[i].queries for i in members)]).astype(np.int32),
        num_decode=sum(case.rows[i].queries == 1 for i in members),
        positions=np.array([p for i in members for p in case.positions()[i]], np.int32),
        block_table=table,
        block_index=None if blocks_of_row is None else index,
    )
    batch = AttentionBatch.from_binding(attention, CPU, case.shape, window)
    query = case.query if select else case.query[torch.from_numpy(tokens)]
    return paged_attention(query, pages, batch, case.scale, sinks, soft_cap), tokens

"""The arrays and pages of one tier, for kernels that take them as they are."""

from dataclasses import dataclass

import numpy as np
import torch
from tests.unit.kernels.attention_case import CPU, PADDING_INDEX, AttentionCase, garbage_pages
from torch import Tensor

from tandem.kernels import native
from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import append_planned, plan_append
from tandem.plan.binding import TierAttention

ISAS = native.supported_isas()


@dataclass(frozen=True)
class TierCase:
    """What a tier's attention is given; `tokens` are those of the case that take part."""

    case: AttentionCase
    attention: TierAttention
    pages: Tensor
    query: Tensor
    tokens: Tensor

    def reference(self) -> AttentionOutput:
        """Attention by the torch kernels."""
        batch = AttentionBatch.from_binding(self.attention, CPU, self.case.shape)
        return paged_attention(self.query, self.pages, batch, self.case.scale)


def make_tier(
    case: AttentionCase,
    blocks_of_row: list[list[int]] | None = None,
    *,
    garbage: float = torch.nan,
    select: bool = False,
    seed: int = 0,
) -> TierCase:
    """A tier that holds the given logical blocks of each row (None: all), in shuffled pages.

    Slots without a token of these rows hold `garbage`; so does block 0, to which padding points.
    """
    shape = case.shape
    held = blocks_of_row or [list(range(-(-r.context // shape.block_size))) for r in case.rows]
    members = [i for i, blocks in enumerate(held) if blocks]
    total = sum(len(held[i]) for i in members) + 1
    ids = iter(1 + np.random.default_rng(seed).permutation(total - 1))
    pages = garbage_pages(case, total, garbage)
    keys, values = case.appended
    table = np.zeros((len(members), max(len(held[i]) for i in members)), np.int32)
    index = np.full(table.shape, PADDING_INDEX, np.int32)
    for line, i in enumerate(members):
        for column, block in enumerate(held[i]):
            table[line, column], index[line, column] = next(ids), block
            first = block * shape.block_size
            tokens = torch.arange(first, min(first + shape.block_size, case.rows[i].context))
            slots = int(table[line, column]) * shape.block_size + tokens - first
            planned = plan_append(slots, shape)
            append_planned(pages, keys[i][tokens], values[i][tokens], planned, shape)
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
    chosen = torch.from_numpy(tokens)
    query = case.query if select else case.query[chosen].contiguous()
    return TierCase(case, attention, pages, query, chosen)

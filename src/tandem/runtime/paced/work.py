"""How much work a lane is, counted from its arrays."""

from dataclasses import dataclass

import numpy as np

from tandem.cost.stage import AttentionWork
from tandem.kernels.attention_plan import count_visible_keys
from tandem.plan.binding import LaneBinding, TierAttention
from tandem.spec.tier import TIERS, Tier

_NO_ATTENTION = AttentionWork(0, 0, 0)


@dataclass(frozen=True, slots=True)
class LaneWork:
    """One lane of one step.

    Attributes:
        tokens: query tokens.
        logits: rows whose logits are wanted.
        attention: per tier, in one layer.
        appended: tokens per tier whose keys and values go there.
    """

    tokens: int
    logits: int
    attention: dict[Tier, AttentionWork]
    appended: dict[Tier, int]


def count_work(binding: LaneBinding, block_size: int) -> LaneWork:
    """Tokens, keys and pairs of a lane."""
    return LaneWork(
        tokens=binding.num_tokens,
        logits=len(binding.logits_index),
        attention={
            tier: _count_attention(binding.attention.get(tier), block_size) for tier in TIERS
        },
        appended={
            tier: len(binding.append[tier].slots) if tier in binding.append else 0 for tier in TIERS
        },
    )


def _count_attention(part: TierAttention | None, block_size: int) -> AttentionWork:
    if part is None:
        return _NO_ATTENTION
    visible = count_visible_keys(part, block_size)
    # A row's last token sees all of the row's keys.
    keys = visible[part.query_start[1:].astype(np.int64) - 1]
    return AttentionWork(len(visible), int(visible.sum()), int(keys.sum()))

"""How much work a lane is, counted from its arrays."""

from typing import NamedTuple

import numpy as np

from tandem.cost.stage import AttentionWork
from tandem.plan.binding import LaneBinding, TierAttention
from tandem.plan.seen_keys import count_seen_keys
from tandem.spec.tier import TIERS, Tier

_NO_ATTENTION = AttentionWork(0, 0, 0)


class LaneWork(NamedTuple):
    """One lane of one step.

    Attributes:
        tokens: query tokens.
        logits: rows whose logits are wanted.
        by_window: attention per tier, in one layer of each window that layers have.
        windows: of each layer.
        appended: tokens per tier whose keys and values go there.
    """

    tokens: int
    logits: int
    by_window: dict[int, dict[Tier, AttentionWork]]
    windows: tuple[int, ...]
    appended: dict[Tier, int]

    def attention(self, tier: Tier, layer: int) -> AttentionWork:
        """The layer's attention over keys in `tier`."""
        return self.seen(tier, self.windows[layer])

    def seen(self, tier: Tier, window: int) -> AttentionWork:
        """Attention over keys in `tier`, in a layer of that window."""
        return self.by_window[window][tier]

    def num_queries(self, tier: Tier) -> int:
        """Query tokens that see keys in a tier."""
        return self.seen(tier, self.windows[0]).tokens

    def num_appended(self, tier: Tier) -> int:
        """Tokens whose keys and values go to a tier."""
        return self.appended[tier]


def count_work(binding: LaneBinding, block_size: int, windows: tuple[int, ...]) -> LaneWork:
    """Tokens, keys and pairs of a lane.

    Args:
        windows: of each layer of the model.
    """
    return LaneWork(
        tokens=binding.num_tokens,
        logits=len(binding.logits_index),
        by_window={
            window: {
                tier: count_attention(binding.attention.get(tier), block_size, window)
                for tier in TIERS
            }
            for window in set(windows)
        },
        windows=windows,
        appended={
            tier: len(binding.append[tier].slots) if tier in binding.append else 0 for tier in TIERS
        },
    )


def count_attention(part: TierAttention | None, block_size: int, window: int) -> AttentionWork:
    """Tokens, keys and pairs of one part of a lane, in a layer of that window."""
    if part is None:
        return _NO_ATTENTION
    if not window and part.block_index is None:  # each token sees all up to its own
        last = part.positions[part.query_start[1:] - 1]
        tokens, keys = len(part.positions), int(last.sum()) + len(last)
        return AttentionWork(tokens, int(part.positions.sum()) + tokens, keys)
    seen = count_seen_keys(part, block_size, window)
    # A row's keys are what its tokens see together: from the first's first to the last's last.
    starts = part.query_start.astype(np.int64)
    keys = seen.end[starts[1:] - 1] - seen.first[starts[:-1]]
    return AttentionWork(len(seen.end), int(seen.count.sum()), int(keys.sum()))

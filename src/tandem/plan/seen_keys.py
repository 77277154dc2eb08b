"""Which keys of a tier each query token sees."""

from dataclasses import dataclass

import numpy as np

from tandem.plan.binding import LongArray, TierAttention


@dataclass(frozen=True, slots=True)
class SeenKeys:
    """Of each token, the range of its row's keys in this tier: int64 [t] each.

    Keys are counted in the order of the row's blocks; a token sees `first` to `end` (exclusive).
    """

    first: LongArray
    end: LongArray

    @property
    def count(self) -> LongArray:
        """Keys that each token sees."""
        return self.end - self.first

    def of(self, tokens: slice) -> "SeenKeys":
        """Those of some tokens."""
        return SeenKeys(self.first[tokens], self.end[tokens])

    def within(self, low: int, high: int) -> "SeenKeys":
        """The part from key `low` to `high` (exclusive); perhaps empty."""
        return SeenKeys(np.clip(self.first, low, high), np.clip(self.end, low, high))


def count_seen_keys(att: TierAttention, block_size: int, window: int = 0) -> SeenKeys:
    """Keys at positions up to a token's own, of those the last `window`; 0: all."""
    positions = att.positions.astype(np.int64)
    end = _count_keys(att, block_size, positions + 1)
    if not window:
        return SeenKeys(np.zeros_like(end), end)
    return SeenKeys(_count_keys(att, block_size, np.maximum(positions + 1 - window, 0)), end)


def _count_keys(att: TierAttention, block_size: int, before: LongArray) -> LongArray:
    """This tier's keys before a position of each token: int64 [t]."""
    if att.block_index is None:
        return before
    rows = np.repeat(np.arange(len(att.block_table)), np.diff(att.query_start))
    first_key = att.block_index.astype(np.int64) * block_size  # [rows, max_blocks]
    return np.clip(before[:, None] - first_key[rows], 0, block_size).sum(1)

"""KV blocks in host memory of which some are pinned: those that cross the link in passes."""

from dataclasses import astuple

import numpy as np
from numpy.typing import NDArray

from tandem.memory.pool import BlockIds, BlockPool
from tandem.memory.pool_state import PoolCounts
from tandem.spec.tier import Tier


class HostPool:
    """Blocks of two kinds, the first ones pinned; a sequence's are all of one kind.

    Args:
        pinned: of them.
    """

    def __init__(self, num_blocks: int, pinned: int) -> None:
        self.pinned = BlockPool(Tier.HOST, pinned)
        self.pageable = BlockPool(Tier.HOST, num_blocks - pinned)

    @property
    def num_blocks(self) -> int:
        """Of both kinds."""
        return self.pinned.num_blocks + self.pageable.num_blocks

    def allocate(self, count: int, *, pinned: bool) -> NDArray[np.int32]:
        """So many free blocks of a kind.

        Raises:
            PoolExhausted: there are fewer.
        """
        if pinned:
            return self.pinned.allocate(count)
        return self.pageable.allocate(count) + np.int32(self.pinned.num_blocks)

    def release(self, blocks: BlockIds, *, pinned: bool) -> None:
        """Of one kind; nobody holds them any more."""
        if pinned:
            self.pinned.release(blocks, None)
        else:
            self.pageable.release(np.asarray(blocks) - self.pinned.num_blocks, None)

    def counts(self) -> PoolCounts:
        """Of both kinds together."""
        both = astuple(self.pinned.counts()), astuple(self.pageable.counts())
        return PoolCounts(*(sum(pair) for pair in zip(*both, strict=True)))

    def check(self) -> None:
        """Raises AssertionError where a pool's own account is wrong."""
        self.pinned.check()
        self.pageable.check()

"""Blocks of the lowest tier that come to hold what was cached before."""

from typing import Protocol

from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import PrefixCache
from tandem.spec.tier import Tier


class PrefixRoom(Protocol):
    """Gives blocks to be filled, and takes them into the prefix cache when they are."""

    @property
    def tier(self) -> Tier:
        """Where the blocks lie."""
        ...

    def take(self, wanted: int) -> list[int]:
        """As many blocks as there is room for; each is to be passed to `keep` or `give_back`."""
        ...

    def keep(self, block: int, digest: bytes) -> None:
        """The block holds the content of `digest` now: it can be found, and is free."""
        ...

    def give_back(self, block: int) -> None:
        """The block holds nothing of use."""
        ...


class WholePool:
    """Any free block of a pool will do."""

    def __init__(self, pool: BlockPool, prefix: PrefixCache) -> None:
        self._pool, self._prefix = pool, prefix

    @property
    def tier(self) -> Tier:
        """Where the blocks lie."""
        return self._pool.tier

    def take(self, wanted: int) -> list[int]:
        """See `PrefixRoom.take`."""
        return self._pool.begin_transfer(min(wanted, self._pool.available)).tolist()

    def keep(self, block: int, digest: bytes) -> None:
        """See `PrefixRoom.keep`."""
        self._pool.complete_transfer([block])
        self._prefix.publish(self.tier, block, digest)
        self._pool.release([block], None)

    def give_back(self, block: int) -> None:
        """See `PrefixRoom.give_back`."""
        self._pool.cancel_transfer([block], None)

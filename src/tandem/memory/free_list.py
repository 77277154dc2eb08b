"""Free blocks of one pool: blank ones first, then cached ones, least recently used first."""

from collections import OrderedDict
from collections.abc import Iterator


class FreeList:
    """Free blocks in two kinds; every operation takes constant time.

    *Blank* blocks hold nothing of worth and are reused last in, first out. *Cached* blocks still
    hold content that the prefix cache can find; they are given up only when no blank one is left,
    the one freed longest ago first.
    """

    __slots__ = ("_blank", "_cached")

    def __init__(self, num_blocks: int) -> None:
        # Reversed, so that a fresh pool hands out blocks 0, 1, 2, ... and copies are contiguous.
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blank) + len(self._cached)

    def __iter__(self) -> Iterator[int]:
        yield from self._blank
        yield from self._cached

    @property
    def num_cached(self) -> int:
        """Free blocks that still hold cached content."""
        return len(self._cached)

    def push(self, block: int, *, cached: bool) -> None:
        """Add a block that has become free; the most recently used of its kind."""
        if cached:
            self._cached[block] = None
        else:
            self._blank.append(block)

    def pop(self) -> int:
        """Remove the block to use next: a blank one, else the least recently used cached one."""
        if self._blank:
            return self._blank.pop()
        return self._cached.popitem(last=False)[0]

    def remove_cached(self, block: int) -> None:
        """Take a cached free block out, because it is held again or no longer cached."""
        del self._cached[block]

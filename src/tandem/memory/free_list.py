"""Free blocks of one pool: blank ones first, then cached ones, least recently used first."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import chain, islice


class FreeList:
    """Free blocks in three kinds; every operation takes constant time.

    *Blank* blocks hold nothing of worth and are reused last in, first out. *Cached* blocks still
    hold content that the prefix cache can find; they are given up only when no blank one is left,
    the one freed longest ago first. *Spare* ones are cached, too, but their content lies elsewhere
    as well: they are given up before the others.
    """

    __slots__ = ("_blank", "_cached", "_spare")

    def __init__(self, num_blocks: int) -> None:
        # Reversed, so that a fresh pool hands out blocks 0, 1, 2, ... and copies are contiguous.
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._spare: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blank) + len(self._spare) + len(self._cached)

    def __iter__(self) -> Iterator[int]:
        yield from self._blank
        yield from self._spare
        yield from self._cached

    @property
    def num_cached(self) -> int:
        """Free blocks that still hold cached content."""
        return len(self._cached) + len(self._spare)

    @property
    def num_blank(self) -> int:
        """Free blocks that hold nothing."""
        return len(self._blank)

    def oldest_cached(self, n: int) -> list[int]:
        """The first `n` cached blocks (or all) in the order in which they are given up."""
        return list(islice(chain(self._spare, self._cached), n))

    def push_blank(self, blocks: Iterable[int]) -> None:
        """Add blank blocks that have become free, the one to be used first last."""
        self._blank.extend(blocks)

    def push_cached(self, block: int, *, spare: bool) -> None:
        """Add a cached block that has become free; the most recently used of its kind.

        Args:
            spare: its content lies elsewhere as well.
        """
        (self._spare if spare else self._cached)[block] = None

    def take(self, n: int) -> list[int]:
        """Remove the `n` blocks to use next: blank ones, then the least recently used cached ones.
        There must be as many.
        """
        rest = max(0, len(self._blank) - n)
        taken = self._blank[rest:][::-1]
        del self._blank[rest:]
        while len(taken) < n:
            taken.append((self._spare or self._cached).popitem(last=False)[0])
        return taken

    def remove_cached(self, block: int) -> None:
        """Take a cached free block out, because it is held again or no longer cached."""
        del (self._spare if block in self._spare else self._cached)[block]

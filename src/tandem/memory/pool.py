"""Block accounting of one tier, apart from the tensors that the blocks stand for.

Life of a block::

    FREE --allocate--> HELD --release--> FREE, or LEASED while operations in flight name it
    FREE --begin_transfer--> IN_TRANSFER --complete_transfer--> HELD
                                         --cancel_transfer--> FREE or LEASED
    LEASED --complete_step--> FREE
    FREE or LEASED, with cached content --share--> HELD
    FREE, with cached content --lease--> LEASED

A release with a lease marks the block until that step completes, even if others hold it still or
it is shared again meanwhile; it cannot become FREE, and so cannot be written anew, before. Sharing
a leased block is safe because only published blocks can be shared without a holder: they are full,
so operations in flight read them and never write.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandem.memory.free_list import FreeList
from tandem.memory.leases import LeaseBook
from tandem.memory.pool_state import BlockState, PoolCounts, PoolExhausted
from tandem.spec.tier import Tier

BlockIds = Sequence[int] | NDArray[np.int32]
"""Block ids in logical order: of several that become free, the last is evicted first."""

# Plain integers: comparing enum members would dominate the cost of a block's transition.
_FREE, _HELD = int(BlockState.FREE), int(BlockState.HELD)
_LEASED, _IN_TRANSFER = int(BlockState.LEASED), int(BlockState.IN_TRANSFER)


class BlockPool:
    """The blocks of one tier; all operations but `check` take time in the blocks touched only.

    Attributes:
        num_taken: free blocks ever given out; while it and the number of cached ones stay the same,
            so do those that would be given out next.

    Misuse (releasing a block that nobody holds, completing a copy never begun) raises ValueError:
    it is an error of the caller's, and the pool is not to be used after it.
    """

    def __init__(self, tier: Tier, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ValueError(f"a pool cannot have {num_blocks} blocks")
        self._tier = tier
        self._total = num_blocks
        self._state = bytearray(num_blocks)
        self._cached = bytearray(num_blocks)
        self._refcount = [0] * num_blocks
        self._num_in_state = [num_blocks, 0, 0, 0]
        self._free = FreeList(num_blocks)
        self._leases = LeaseBook(num_blocks)
        self._on_evict: Callable[[int], None] | None = None
        self._spare: set[int] = set()
        self.num_taken = 0

    @property
    def tier(self) -> Tier:
        """Where the blocks lie."""
        return self._tier

    @property
    def num_blocks(self) -> int:
        """All blocks of the pool."""
        return self._total

    @property
    def available(self) -> int:
        """Blocks that can be allocated now: blank ones and evictable cached ones."""
        return len(self._free)

    @property
    def num_blank(self) -> int:
        """Free blocks without cached content: they are allocated first."""
        return self._free.num_blank

    def next_evicted(self, n: int) -> list[int]:
        """Of the `n` blocks that would be allocated next, those whose content would be lost, in
        order.
        """
        return self._free.oldest_cached(max(0, n - self._free.num_blank))

    @property
    def completed_step(self) -> int:
        """The last step passed to `complete_step`; -1 before the first."""
        return self._leases.completed_step

    def counts(self) -> PoolCounts:
        """Blocks by state."""
        free, held, leased, in_transfer = self._num_in_state
        return PoolCounts(self._total, free, held, leased, in_transfer, self._free.num_cached)

    def state(self, block: int) -> BlockState:
        """State of one block."""
        return BlockState(self._state[block])

    def refcount(self, block: int) -> int:
        """Holders of one block."""
        return self._refcount[block]

    def is_cached(self, block: int) -> bool:
        """True if the prefix cache can find the block's content."""
        return bool(self._cached[block])

    def num_free_among(self, blocks: BlockIds) -> int:
        """How many of these distinct blocks are FREE: sharing them takes so many of `available`."""
        return sum(self._state[block] == _FREE for block in _ids(blocks))

    def allocate(self, n: int) -> NDArray[np.int32]:
        """Take n free blocks; each has one holder, the caller. Content is undefined.

        Returns: int32 [n]; blank blocks first, then the least recently used cached ones, whose
        eviction has been told to the subscriber.

        Raises:
            PoolExhausted: fewer than n are available; nothing has changed.
        """
        blocks = self._take(n, _HELD)
        for block in blocks:
            self._refcount[block] = 1
        return np.array(blocks, dtype=np.int32)

    def share(self, blocks: BlockIds) -> None:
        """Add one holder to each block; revives FREE and LEASED blocks with cached content.

        Call it before `allocate`, which might evict what was matched.

        Raises:
            ValueError: a block without holder that is not cached, or one in transfer.
        """
        for block in _ids(blocks):
            state = self._state[block]
            if state != _HELD:
                if state == _IN_TRANSFER or not self._cached[block]:
                    raise self._misuse("share", block)
                if state == _FREE:
                    self._free.remove_cached(block)
                self._spare.discard(block)
                self._set_state(block, _HELD)
            self._refcount[block] += 1

    def release(self, blocks: BlockIds, lease_step: int | None) -> None:
        """Take one holder from each block.

        Args:
            blocks: in logical order, so that a chain's tail is evicted before its head.
            lease_step: last submitted step whose operations name the blocks, None if none does.
                Blocks left without holder are LEASED until it, and every earlier lease on them,
                has completed.

        Raises:
            ValueError: a block that nobody holds.
        """
        refcount, unheld = self._refcount, list[int]()
        released = _ids(blocks)[::-1]
        if lease_step is not None:
            self._leases.extend(released, lease_step)
        for block in released:
            if refcount[block] <= 0:
                self._retire(unheld)  # so that the message is about what is
                raise self._misuse("release", block)
            refcount[block] -= 1
            if refcount[block] == 0:
                unheld.append(block)
        self._retire(unheld)

    def lease(self, blocks: BlockIds, step: int) -> None:
        """Keep the content of free cached blocks until `step` completes, which copies it; then they
        are evicted before others, in the order of their leases, and of `blocks`.

        Raises:
            ValueError: a block that is not free, or has no cached content.
        """
        for block in _ids(blocks):
            if self._state[block] != _FREE or not self._cached[block]:
                raise self._misuse("lease", block)
            self._free.remove_cached(block)
            self._leases.extend((block,), step)
            self._spare.add(block)
            self._retire((block,))

    def complete_step(self, step: int) -> bool:
        """All operations of steps up to `step` have signalled; their leases expire.

        Returns: whether there were any.

        Raises:
            ValueError: `step` is smaller than one that completed before.
        """
        expired = self._leases.complete(step)
        if expired:
            self._retire([block for block in expired if self._state[block] == _LEASED])
        return bool(expired)

    def begin_transfer(self, n: int) -> NDArray[np.int32]:
        """Take n free blocks as destination of a copy; nobody may read them yet.

        Returns: int32 [n].

        Raises:
            PoolExhausted: fewer than n are available; nothing has changed.
        """
        return np.array(self._take(n, _IN_TRANSFER), dtype=np.int32)

    def complete_transfer(self, blocks: BlockIds) -> None:
        """The copy has arrived; each block now has one holder, the caller.

        Raises:
            ValueError: a block that is not in transfer.
        """
        for block in _ids(blocks):
            if self._state[block] != _IN_TRANSFER:
                raise self._misuse("complete the transfer of", block)
            self._refcount[block] = 1
            self._set_state(block, _HELD)

    def cancel_transfer(self, blocks: BlockIds, lease_step: int | None) -> None:
        """Give the destination up; a copy in flight may write it until `lease_step` completes.

        Raises:
            ValueError: a block that is not in transfer.
        """
        for block in reversed(_ids(blocks)):
            if self._state[block] != _IN_TRANSFER:
                raise self._misuse("cancel the transfer of", block)
            if lease_step is not None:
                self._leases.extend((block,), lease_step)
            self._retire((block,))

    def subscribe_evictions(self, on_evict: Callable[[int], None]) -> None:
        """Have `on_evict(block)` called when a cached block is allocated for something else.

        It must not call the pool back.
        """
        self._on_evict = on_evict

    def mark_cached(self, block: int) -> None:
        """The block's content can be found from now on; kept when free, as long as possible.

        Raises:
            ValueError: the block is FREE or in transfer, so its content is not the caller's.
        """
        if self._state[block] not in (_HELD, _LEASED):
            raise self._misuse("publish", block)
        self._cached[block] = 1

    def unmark_cached(self, block: int) -> None:
        """The block's content can no longer be found; if free, it is blank from now on."""
        if self._cached[block]:
            self._cached[block] = 0
            if self._state[block] == _FREE:
                self._free.remove_cached(block)
                self._free.push_blank((block,))

    def check(self) -> None:
        """Recount everything, in time of the whole pool.

        Raises:
            AssertionError: states, counts, free list, holders or leases disagree.
        """
        recount = [self._state.count(state) for state in range(4)]
        where = f"{self._tier.label} pool of {self._total}"
        assert sum(recount) == self._total, f"{where}: free, held, leased, in transfer = {recount}"
        assert recount == self._num_in_state, (
            f"{where}: {recount} by block, {self._num_in_state} kept"
        )
        free = list(self._free)
        assert len(set(free)) == len(free) == recount[_FREE], (
            f"{where}: {recount[_FREE]} free, {len(free)} listed, {len(set(free))} distinct"
        )
        for block in range(self._total):
            self._check_block(block, where)
        assert all(self._state[b] == _FREE for b in free), f"{where}: a listed block is not free"
        cached_free = sum(self._cached[b] for b in free)
        assert cached_free == self._free.num_cached, (
            f"{where}: {cached_free} free blocks cached, {self._free.num_cached} listed"
        )

    def check_idle(self) -> None:
        """`check`, and that nothing is held, leased or in transfer.

        Raises:
            AssertionError: with the counts.
        """
        self.check()
        assert self.available == self._total, (
            f"{self._tier.label} pool is not idle: {self.counts()}"
        )

    def _check_block(self, block: int, where: str) -> None:
        wrong = self._contradiction(block)
        if wrong is not None:  # said only then: texts of all blocks would take most of a check
            state, refcount = BlockState(self._state[block]), self._refcount[block]
            raise AssertionError(
                f"{where}: block {block} is {state.name}, refcount {refcount}{wrong}"
            )

    def _contradiction(self, block: int) -> str | None:
        """What does not agree with the block's state, beside its count of holders."""
        state, refcount = self._state[block], self._refcount[block]
        leased = self._leases.is_active(block)
        if refcount < 0 or (refcount > 0) != (state == _HELD):
            return ""
        if state == _FREE and leased:
            return ", under lease"
        if state == _LEASED and not leased:
            return ", under no lease"
        if state == _IN_TRANSFER and self._cached[block]:
            return ", cached"
        if state != _LEASED and block in self._spare:
            return ", to spare"
        return None

    def _take(self, n: int, state: int) -> list[int]:
        if n < 0:
            raise ValueError(f"cannot take {n} blocks")
        if n > len(self._free):
            raise PoolExhausted(self._tier, n, len(self._free))
        blocks = self._free.take(n)
        self.num_taken += n
        self._num_in_state[_FREE] -= n
        self._num_in_state[state] += n
        states, cached = self._state, self._cached
        for block in blocks:
            states[block] = state
            if cached[block]:
                cached[block] = 0
                if self._on_evict is not None:
                    self._on_evict(block)
        return blocks

    def _retire(self, blocks: Iterable[int]) -> None:
        """Distinct blocks without a holder: they are free, in this order, or leased still."""
        blank = list[int]()
        for block in blocks:
            if self._leases.is_active(block):
                self._set_state(block, _LEASED)
                continue
            self._set_state(block, _FREE)
            spare = block in self._spare
            if spare:
                self._spare.discard(block)
            if self._cached[block]:
                self._free.push_cached(block, spare=spare)
            else:
                blank.append(block)
        self._free.push_blank(blank)

    def _set_state(self, block: int, state: int) -> None:
        self._num_in_state[self._state[block]] -= 1
        self._num_in_state[state] += 1
        self._state[block] = state

    def _misuse(self, action: str, block: int) -> ValueError:
        state = BlockState(self._state[block]).name
        return ValueError(
            f"{self._tier.label} pool: cannot {action} block {block}: "
            f"{state}, refcount {self._refcount[block]}, cached {bool(self._cached[block])}"
        )


def _ids(blocks: BlockIds) -> Sequence[int]:
    # Lists of Python integers are several times faster to walk than arrays.
    return blocks.tolist() if isinstance(blocks, np.ndarray) else blocks

"""KV blocks of rows: allocation in two tiers, prefix reuse, release under leases, moves."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import CachedBlock, PrefixCache
from tandem.plan.binding import IntArray, LongArray
from tandem.scheduler.rows import RowTable
from tandem.scheduler.sequence import Sequence
from tandem.spec.tier import TIERS, Tier


class BlockNeed(NamedTuple):
    """Free blocks that something takes, per tier."""

    device: int = 0
    host: int = 0

    def fits(self, free: "BlockNeed") -> bool:
        """True if `free` covers it."""
        return self.device <= free.device and self.host <= free.host

    def plus(self, other: "BlockNeed") -> "BlockNeed":
        """Sum."""
        return BlockNeed(self.device + other.device, self.host + other.host)

    def minus(self, other: "BlockNeed") -> "BlockNeed":
        """Difference, perhaps negative."""
        return BlockNeed(self.device - other.device, self.host - other.host)


NO_BLOCKS = BlockNeed()


class KVManager:
    """Applies block decisions to the pools and the row table, and keeps both in step.

    Args:
        publish_moved: False: a move changes what blocks hold, so that no other row may use them.
    """

    def __init__(
        self,
        rows: RowTable,
        pools: dict[Tier, BlockPool],
        prefix: PrefixCache,
        block_size: int,
        *,
        publish_moved: bool = True,
    ) -> None:
        self._rows = rows
        self.pools = pools
        self._device, self._host = pools[Tier.DEVICE], pools[Tier.HOST]
        self.prefix = prefix
        self.block_size = block_size
        self._size = np.array(block_size, dtype=np.int32)
        self._publish_moved = publish_moved
        self._arriving: dict[int, tuple[bytes, ...]] = {}

    # --- questions (pure) -------------------------------------------------------------------------

    def free(self) -> BlockNeed:
        """Blocks that can be allocated now."""
        return BlockNeed(self._device.available, self._host.available)

    def total(self) -> BlockNeed:
        """Sizes of the pools."""
        return BlockNeed(self._device.num_blocks, self._host.num_blocks)

    def returning(self) -> BlockNeed:
        """Blocks that will come free without anyone's doing: leased ones."""
        return BlockNeed(self._device.counts().leased, self._host.counts().leased)

    def need(self, first: int, last: int, device_limit: int) -> BlockNeed:
        """Blocks of logical numbers `first` to `last` (exclusive) by tier."""
        device = max(0, min(last, device_limit) - first)
        return BlockNeed(device, max(0, last - first - device))

    def growth(self, row: int, num_tokens: int) -> BlockNeed:
        """Blocks that a row must get to hold `num_tokens` more."""
        r = self._rows
        last = -(-(int(r.submitted[row]) + num_tokens) // self.block_size)
        return self.need(int(r.num_blocks[row]), last, int(r.device_limit[row]))

    def needs_block(self, rows: LongArray) -> LongArray:
        """Those of `rows` whose next token starts a block that they do not have yet."""
        full = self._rows.submitted >= self._rows.num_blocks * self._size
        return rows[full[rows]]

    def one_block_each(self, rows: LongArray) -> BlockNeed:
        """Blocks that rows take which must get one each."""
        if not len(rows):
            return NO_BLOCKS
        device = int(np.count_nonzero(self._next_on_device(rows)))
        return BlockNeed(device, len(rows) - device)

    def _next_on_device(self, rows: LongArray) -> NDArray[np.bool_]:
        return self._rows.num_blocks[rows] < self._rows.device_limit[rows]

    def matched(self, sequence: Sequence, device_limit: int) -> list[CachedBlock]:
        """Cached blocks with which a sequence may start: each in the tier where it would be put."""
        count = (len(sequence.tokens) - 1) // self.block_size
        found: list[CachedBlock] = []
        for index, digest in enumerate(sequence.digests[:count]):
            tier = Tier.DEVICE if index < device_limit else Tier.HOST
            entry = self.prefix.find_in(tier, digest)
            if entry is None:
                break
            found.append(entry)
        return found

    def tokens_others_hold(self, row: int) -> int:
        """Tokens at the beginning of a row whose blocks are others', too."""
        r, blocks = self._rows, 0
        for number in range(int(r.num_blocks[row])):
            pool = self.pools[TIERS[int(r.block_tiers[row, number])]]
            if pool.refcount(int(r.block_ids[row, number])) < 2:
                break
            blocks += 1
        return blocks * self.block_size

    def ready_on_device(self, row: int, sequence: Sequence) -> list[CachedBlock]:
        """Blocks at the beginning of a row on the host that the device has cached, but for its
        last one.
        """
        if not self.prefix.enabled:
            return []
        self.prefix.extend_digests(sequence.digests, sequence.tokens)
        full = int(self._rows.computed[row]) // self.block_size
        found: list[CachedBlock] = []
        for digest in sequence.digests[: min(full, int(self._rows.num_blocks[row]) - 1)]:
            entry = self.prefix.find_in(Tier.DEVICE, digest)
            if entry is None:
                break
            found.append(entry)
        return found

    def matched_across(self, sequence: Sequence) -> list[CachedBlock]:
        """Cached blocks with which a sequence may start once those on the host have been brought to
        the device; the device's copy where both tiers have one.
        """
        return self.prefix.match_digests(sequence.digests, len(sequence.tokens))

    def arriving(self, entries: list[CachedBlock]) -> bool:
        """Whether the content of some of these is on its way to the device already."""
        under_way = self._arriving.values()
        return any(entry.digest in digests for digests in under_way for entry in entries)

    def num_arriving(self) -> int:
        """Blocks on their way to the device."""
        return sum(map(len, self._arriving.values()))

    def admission_need(
        self, sequence: Sequence, matched: list[CachedBlock], device_limit: int, num_tokens: int
    ) -> BlockNeed:
        """Free blocks that a new row takes to hold its first `num_tokens` tokens.

        Reviving a cached block that nobody holds takes one free block too, and bringing one from
        the host takes one on the device.
        """
        last = -(-num_tokens // self.block_size)
        need = self.need(len(matched), last, device_limit)
        if not matched:
            return need
        fetched = sum(entry.tier is Tier.HOST for entry in matched[:device_limit])
        need = need.plus(BlockNeed(fetched, 0))
        for tier in TIERS:
            revived = self.pools[tier].num_free_among([m.block for m in matched if m.tier is tier])
            need = need.plus(
                BlockNeed(revived, 0) if tier is Tier.DEVICE else BlockNeed(0, revived)
            )
        return need

    # --- changes ----------------------------------------------------------------------------------

    def adopt(self, row: int, matched: list[CachedBlock]) -> int:
        """Share cached blocks with a new row; returns the tokens they hold."""
        for entry in matched:
            self.pools[entry.tier].share([entry.block])
            self._rows.extend_blocks(row, entry.tier, [entry.block])
        self._rows.published[row] = len(matched)
        return len(matched) * self.block_size

    def grow(self, row: int, num_tokens: int) -> None:
        """Allocate what a row needs to hold `num_tokens` more.

        Raises:
            PoolExhausted: the proposal was wrong; nothing of this tier was taken.
        """
        need = self.growth(row, num_tokens)
        for tier, count in ((Tier.DEVICE, need.device), (Tier.HOST, need.host)):
            if count:
                self._rows.extend_blocks(row, tier, self.pools[tier].allocate(count))

    def grow_by_one_block(self, rows: LongArray) -> None:
        """Allocate one block for each of some rows.

        Raises:
            PoolExhausted: the proposal was wrong; nothing of this tier was taken.
        """
        if len(rows) == 0:
            return
        r, on_device = self._rows, self._next_on_device(rows)
        there = int(np.count_nonzero(on_device))
        if there:
            r.append_blocks(rows[on_device], Tier.DEVICE, self._device.allocate(there))
        if there < len(rows):
            taken = self._host.allocate(len(rows) - there)
            r.append_blocks(rows[~on_device], Tier.HOST, taken)

    def release(self, row: int, *, moving: bool) -> None:
        """Give all blocks of a row back; those that operations in flight name stay leased.

        Args:
            moving: a copy of the row's blocks may be in flight.
        """
        r = self._rows
        busy = moving or not r.drained(row)
        lease = int(r.last_step[row]) if busy and r.last_step[row] >= 0 else None
        for tier in TIERS:
            blocks = r.blocks(row, tier)
            if len(blocks):
                self.pools[tier].release(blocks, lease)
        r.drop_blocks(row)

    def publish(self, rows: LongArray, sequences: Iterable[Sequence], num_full: IntArray) -> None:
        """Offer the leading `num_full` blocks of each of some rows to the prefix cache.

        Their KV is complete in every layer and their tokens are known.
        """
        r, prefix, first = self._rows, self.prefix, self._rows.published[rows]
        counts = num_full - first
        # all their new blocks, row after row
        at, number = rows.repeat(counts), first.repeat(counts)
        if len(at) > len(rows):
            number += np.arange(len(at)) - (counts.cumsum() - counts).repeat(counts)
        tiers, ids = r.block_tiers[at, number].tolist(), r.block_ids[at, number].tolist()
        blocks = zip(tiers, ids, strict=True)
        for sequence, begin, end in zip(sequences, first.tolist(), num_full.tolist(), strict=True):
            prefix.extend_digests(sequence.digests, sequence.tokens)
            for digest in sequence.digests[begin:end]:
                tier, block = next(blocks)
                prefix.publish(TIERS[int(tier)], int(block), digest)
        r.published[rows] = num_full

    def begin_move(self, row: int, target: Tier) -> tuple[IntArray, IntArray]:
        """First phase of moving a row's blocks of the other tier: reserve their destinations.

        Returns: (source blocks, target blocks), equally long.
        """
        origin = Tier.HOST if target is Tier.DEVICE else Tier.DEVICE
        source = self._rows.blocks(row, origin)
        if target is Tier.DEVICE:
            self.note_arriving(row, source)
        return source, self.pools[target].begin_transfer(len(source))

    def complete_move(self, row: int, target: Tier, source: IntArray, blocks: IntArray) -> None:
        """Second phase: the copy has arrived; the row's blocks are the new ones, and what was
        offered to the prefix cache can be found in both tiers.
        """
        origin = Tier.HOST if target is Tier.DEVICE else Tier.DEVICE
        self.arrived(row)
        self.pools[target].complete_transfer(blocks)
        self._rows.gather_blocks(row, target, blocks)
        self.publish_copies(row, target, source, blocks)
        self.pools[origin].release(source, None)

    def note_arriving(self, row: int, source: IntArray) -> None:
        """Blocks of a row on the host are on their way to the device."""
        found = (self.prefix.digest_of(Tier.HOST, block) for block in source.tolist())
        self._arriving[row] = tuple(digest or b"" for digest in found)

    def arrived(self, row: int) -> None:
        """None of a row's are any more."""
        self._arriving.pop(row, None)

    def publish_copies(self, row: int, target: Tier, source: IntArray, blocks: IntArray) -> None:
        """What a row's blocks of the other tier were found by, those of `target` are, too."""
        if not self._publish_moved:  # counted as offered; the row's next blocks can be
            self._rows.published[row] = self._rows.num_blocks[row]
            return
        origin = Tier.HOST if target is Tier.DEVICE else Tier.DEVICE
        for old, new in zip(source.tolist(), blocks.tolist(), strict=True):
            digest = self.prefix.digest_of(origin, old)
            if digest is not None:
                self.prefix.publish(target, new, digest)

    def cancel_move(self, row: int, target: Tier, blocks: IntArray, step: int | None) -> None:
        """The row died; the destination stays leased until the copy (if it has begun) is over."""
        self.arrived(row)
        self.pools[target].cancel_transfer(blocks, step)

    def complete_step(self, step: int) -> bool:
        """All operations of steps up to `step` have signalled.

        Returns: whether any block was waiting for that.
        """
        freed = self._device.complete_step(step)
        return self._host.complete_step(step) or freed

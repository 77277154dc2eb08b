"""Cached prefixes in two tiers: what the device is about to forget is copied to the host."""

from collections import OrderedDict
from dataclasses import dataclass

from tandem.memory.pool import BlockPool
from tandem.memory.pool_state import BlockState
from tandem.memory.prefix_cache import CachedBlock, PrefixCache
from tandem.plan.binding import IntArray
from tandem.scheduler.fetching import FetchRule
from tandem.spec.tier import Tier

_MOST_AHEAD_STEPS = 2


@dataclass(frozen=True, slots=True)
class Demotion:
    """A copy to the host under way.

    Attributes:
        source: blocks of the device. target: int32; those of the host.
        digests: what they are found by.
    """

    source: list[int]
    target: IntArray
    digests: tuple[bytes, ...]


class PrefixTiers:
    """Sees to it that the blocks which the device would evict next have copies on the host.

    Copies are made ahead of need, since a block may be written anew in the very step that it is
    allocated for, and few at a time (`FetchRule.copied_beside`). A copy's source is
    leased, and is the first to be evicted once it has been read. At most `most` blocks of the host
    hold such copies; beyond it the least recently used goes. Whoever needs the host's blocks gets
    these, too, as any that is free.

    Args:
        most: blocks of the host.
    """

    def __init__(
        self, pools: dict[Tier, BlockPool], prefix: PrefixCache, most: int, rule: FetchRule
    ) -> None:
        self._device, self._host = pools[Tier.DEVICE], pools[Tier.HOST]
        self._prefix, self._most = prefix, most
        # what two steps of prompts may take, and no more than may have copies: else copying would
        # go round for ever
        ahead = _MOST_AHEAD_STEPS * -(-rule.max_tokens // rule.block_size)
        self._ahead = min(ahead, max(1, self._device.num_blocks // 2), most)
        self._safe_at = (-1, -1, -1)
        self._copies: OrderedDict[int, None] = OrderedDict()
        self._under_way: Demotion | None = None
        self._taken = 0
        self.rule = rule
        prefix.subscribe_evictions(self._forget)

    @property
    def num_copies(self) -> int:
        """Blocks of the host that hold copies."""
        return len(self._copies)

    @property
    def num_awaited(self) -> int:
        """Blocks of the host that a copy under way will fill, or what comes from elsewhere."""
        return self._taken + (0 if self._under_way is None else len(self._under_way.target))

    def begin(self, *, hosted: bool) -> Demotion | None:
        """Reserve blocks on the host for what the device would evict next; None if there is nothing
        to copy, no room, or a copy under way. To be followed by `started`.

        Args:
            hosted: rows on the host run.
        """
        # no more than there is room for just now: else each copy would evict the one before it, and
        # rows on the host would wait for ever for the room that copies have in turns
        ahead = min(self._ahead, self._host.available)
        at = (self._device.num_taken, self._device.counts().cached_free, ahead)
        if self._under_way is not None or at == self._safe_at or not self.rule.worth_keeping():
            return None
        source = self._endangered(ahead, self.rule.copied_beside(hosted=hosted))
        if not source:
            self._safe_at = at
        source = source[: self._make_room(len(source))]
        if not source:
            return None
        digests = [self._prefix.digest_of(Tier.DEVICE, block) for block in source]
        target = self._host.begin_transfer(len(source))
        found = tuple(digest for digest in digests if digest is not None)
        assert len(found) == len(source), "a cached block without a digest"
        self._under_way = Demotion(source, target, found)
        return self._under_way

    def started(self, step: int) -> None:
        """The copy is part of a step: until it has retired, its source must not be written."""
        assert self._under_way is not None
        self._device.lease(self._under_way.source, step)

    def arrived(self) -> None:
        """The copy has ended."""
        copy, self._under_way = self._under_way, None
        assert copy is not None
        self._host.complete_transfer(copy.target)
        for block, digest in zip(copy.target.tolist(), copy.digests, strict=True):
            if self._prefix.publish(Tier.HOST, block, digest):
                self._copies[block] = None
        self._host.release(copy.target, None)
        self._prefix.record_demoted(len(copy.target))

    @property
    def tier(self) -> Tier:
        """Where the copies lie."""
        return Tier.HOST

    def take(self, wanted: int) -> list[int]:
        """Blocks of the host, to be filled with what was cached before: as many as there is room
        for. Each is to be passed to `keep` or `give_back`.
        """
        blocks = self._host.begin_transfer(self._make_room(wanted)).tolist()
        self._taken += len(blocks)
        return blocks

    def keep(self, block: int, digest: bytes) -> None:
        """A block that was taken holds the content of `digest` now."""
        self._taken -= 1
        self._host.complete_transfer([block])
        if self._prefix.publish(Tier.HOST, block, digest):
            self._copies[block] = None
        self._host.release([block], None)

    def give_back(self, block: int) -> None:
        """A block that was taken holds nothing of use."""
        self._taken -= 1
        self._host.cancel_transfer([block], None)

    def used(self, entries: list[CachedBlock]) -> None:
        """A sequence begins with these: their copies are the last to go."""
        for entry in entries:
            if entry.tier is Tier.HOST and entry.block in self._copies:
                self._copies.move_to_end(entry.block)

    def check(self) -> None:
        """Copies can be found, and are no more than allowed.

        Raises:
            AssertionError: with the numbers.
        """
        count = self.num_copies + self.num_awaited
        assert count <= self._most, f"{count} blocks of the host hold copies, not {self._most}"
        for block in self._copies:
            assert self._prefix.digest_of(Tier.HOST, block) is not None, (
                f"host block {block} is said to hold a copy"
            )

    def _endangered(self, ahead: int, most: int) -> list[int]:
        """Of the first blocks to be evicted on the device, those of which the host has no copy."""
        found: list[int] = []
        for block in self._device.next_evicted(ahead):
            digest = self._prefix.digest_of(Tier.DEVICE, block)
            if digest is not None and self._prefix.find_in(Tier.HOST, digest) is None:
                found.append(block)
                if len(found) == most:
                    break
        return found

    def _make_room(self, wanted: int) -> int:
        """Forget the oldest copies beyond the bound; returns how many blocks may be taken."""
        over = self.num_copies + self.num_awaited + wanted - self._most
        idle = (b for b in self._copies if self._host.state(b) is BlockState.FREE)
        for block in [block for _, block in zip(range(over), idle, strict=False)]:
            self._prefix.drop(Tier.HOST, block)
        left = self._most - self.num_copies - self.num_awaited
        room = min(wanted, left, self._host.available)
        return max(0, room)

    def _forget(self, tier: Tier, block: int) -> None:
        if tier is Tier.HOST:
            self._copies.pop(block, None)

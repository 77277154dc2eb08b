"""Which computed blocks can be used again by a sequence that begins with the same tokens."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from tandem.memory.block_hash import BlockHasher, TokenIds
from tandem.memory.pool import BlockPool
from tandem.spec.tier import TIERS, Tier


class CachedBlock(NamedTuple):
    """Where the content of one digest lies."""

    tier: Tier
    block: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class PrefixStats:
    """Tokens asked for and found since the start.

    Attributes:
        queries: sequences recorded; `query_tokens` their tokens; `hit_tokens` those reused, by the
            tier in which they were found.
        fetched_tokens: those of the reused that were brought to the other tier first.
        demoted_blocks: copied to the host, lest their content be lost on the device.
        evicted_device_blocks, evicted_host_blocks: whose content gave way to another use.
    """

    queries: int = 0
    query_tokens: int = 0
    device_hit_tokens: int = 0
    host_hit_tokens: int = 0
    fetched_tokens: int = 0
    demoted_blocks: int = 0
    evicted_device_blocks: int = 0
    evicted_host_blocks: int = 0

    @property
    def hit_tokens(self) -> int:
        """Found in either tier."""
        return self.device_hit_tokens + self.host_hit_tokens


@dataclass(frozen=True, slots=True)
class DiskStats:
    """Blocks since the start, but for `stored_blocks` and `room_blocks`, which are now.

    Attributes:
        damaged_blocks: read, but not as they were written; their tokens were computed again.
        evicted_blocks: that gave way to others on the disk.
        writing: False once the disk took no more.
    """

    stored_blocks: int
    room_blocks: int
    written_blocks: int = 0
    read_blocks: int = 0
    damaged_blocks: int = 0
    evicted_blocks: int = 0
    writing: bool = True


class PrefixCache:
    """Digests of full, computed blocks of both tiers.

    A digest is found at no more than one block per tier (the first published wins) and a block
    has at most one digest. The cache holds no reference: content stays findable until the block
    is allocated for something else, which the pool reports. Nothing is found or kept when
    `enabled` is False.

    Args:
        pools: of one block size; the cache subscribes to their evictions.
        salt: keeps sequences of differing meaning apart, for example per model.
    """

    def __init__(
        self,
        pools: Mapping[Tier, BlockPool],
        block_size: int,
        *,
        enabled: bool = True,
        salt: bytes = b"",
    ) -> None:
        self._pools = dict(pools)
        self._hasher = BlockHasher(block_size, salt=salt)
        self._enabled = enabled
        self._blocks: dict[Tier, dict[bytes, int]] = {tier: {} for tier in pools}
        self._digests: dict[Tier, dict[int, bytes]] = {tier: {} for tier in pools}
        # Device first: its blocks cost nothing to use.
        self._order = tuple(tier for tier in TIERS if tier in pools)
        self._queries = self._query_tokens = self._fetched_tokens = self._demoted = 0
        self._hit_tokens: dict[Tier, int] = dict.fromkeys(TIERS, 0)
        self._evicted: dict[Tier, int] = dict.fromkeys(TIERS, 0)
        self._on_evict: list[Callable[[Tier, int], None]] = []
        self._on_publish: list[Callable[[Tier, int, bytes], None]] = []
        for tier, pool in pools.items():
            pool.subscribe_evictions(partial(self._evict, tier))

    @property
    def enabled(self) -> bool:
        """False if the cache never finds anything."""
        return self._enabled

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._hasher.block_size

    @property
    def stats(self) -> PrefixStats:
        """Tokens asked for and found so far."""
        return PrefixStats(
            self._queries,
            self._query_tokens,
            self._hit_tokens[Tier.DEVICE],
            self._hit_tokens[Tier.HOST],
            self._fetched_tokens,
            self._demoted,
            self._evicted[Tier.DEVICE],
            self._evicted[Tier.HOST],
        )

    def subscribe_evictions(self, on_evict: Callable[[Tier, int], None]) -> None:
        """Have `on_evict(tier, block)` called when a block's content can be found no longer."""
        self._on_evict.append(on_evict)

    def subscribe_publications(self, on_publish: Callable[[Tier, int, bytes], None]) -> None:
        """Have `on_publish(tier, block, digest)` called when a block's content can be found."""
        self._on_publish.append(on_publish)

    def __len__(self) -> int:
        return sum(len(blocks) for blocks in self._blocks.values())

    def extend_digests(self, digests: list[bytes], tokens: TokenIds) -> None:
        """Append the digests of new full blocks of `tokens`; nothing if disabled.

        See `BlockHasher.extend`.
        """
        if self._enabled:
            self._hasher.extend(digests, tokens)

    def publish(self, tier: Tier, block: int, digest: bytes) -> bool:
        """Make a full block findable after all its layers have been computed (or copied).

        Returns: False if nothing changed: disabled, or the digest is found in this tier already.

        Raises:
            ValueError: the block is free, in transfer, or published under another digest.
        """
        if not self._enabled:
            return False
        known = self._digests[tier].get(block)
        if known is not None and known != digest:
            raise ValueError(f"{tier.label} block {block} is published with other content")
        if digest in self._blocks[tier]:
            return False
        self._pools[tier].mark_cached(block)
        self._blocks[tier][digest] = block
        self._digests[tier][block] = digest
        for on_publish in self._on_publish:
            on_publish(tier, block, digest)
        return True

    def find(self, digest: bytes) -> CachedBlock | None:
        """Where a digest's content lies; the device's copy if both tiers have one."""
        for tier in self._order:
            entry = self.find_in(tier, digest)
            if entry is not None:
                return entry
        return None

    def find_in(self, tier: Tier, digest: bytes) -> CachedBlock | None:
        """Where a digest's content lies in one tier."""
        block = self._blocks[tier].get(digest)
        return None if block is None else CachedBlock(tier, block, digest)

    def digest_of(self, tier: Tier, block: int) -> bytes | None:
        """What a block is found by; None if it cannot be found."""
        return self._digests[tier].get(block)

    def drop(self, tier: Tier, block: int) -> None:
        """Forget a block's content; who holds it keeps it."""
        self._evict(tier, block)
        self._pools[tier].unmark_cached(block)

    def match_digests(self, digests: Sequence[bytes], num_tokens: int) -> list[CachedBlock]:
        """The longest cached beginning of a sequence; changes nothing.

        At most `(num_tokens - 1) // block_size` blocks, so that a token is left to compute and
        give logits. The caller shares the blocks with their pools before it allocates.

        Args:
            digests: of the sequence's full blocks in order.
            num_tokens: length of the sequence.
        """
        found: list[CachedBlock] = []
        for digest in digests[: max(0, num_tokens - 1) // self.block_size]:
            entry = self.find(digest)
            if entry is None:
                break
            found.append(entry)
        return found

    def match(self, tokens: TokenIds) -> list[CachedBlock]:
        """`match_digests` for a sequence whose digests are not at hand."""
        digests: list[bytes] = []
        self.extend_digests(digests, tokens)
        return self.match_digests(digests, len(tokens))

    def record(self, num_tokens: int, found: Sequence[CachedBlock], fetched: int = 0) -> None:
        """Count one admitted sequence; apart from matching, which may be repeated while waiting.

        Args:
            found: blocks that it begins with; `fetched` of them come to the other tier.
        """
        if self._enabled:
            self._queries += 1
            self._query_tokens += num_tokens
            self._fetched_tokens += fetched * self.block_size
            for entry in found:
                self._hit_tokens[entry.tier] += self.block_size

    def record_demoted(self, num_blocks: int) -> None:
        """Count blocks of which the host has a copy now."""
        self._demoted += num_blocks

    def clear(self) -> None:
        """Forget all content; blocks in use stay with their holders."""
        for tier, digests in self._digests.items():
            for block in digests:
                self._pools[tier].unmark_cached(block)
                for on_evict in self._on_evict:
                    on_evict(tier, block)
            digests.clear()
            self._blocks[tier].clear()

    def check(self) -> None:
        """Both directions of the map agree with each other and with the pools.

        Raises:
            AssertionError: with the tier and the numbers.
        """
        for tier, digests in self._digests.items():
            blocks, pool = self._blocks[tier], self._pools[tier]
            assert len(blocks) == len(digests), (
                f"{tier.label} prefix cache: {len(blocks)} digests, {len(digests)} blocks"
            )
            marked = sum(pool.is_cached(block) for block in range(pool.num_blocks))
            assert marked == len(digests), (
                f"{tier.label} prefix cache: {len(digests)} blocks, {marked} marked in the pool"
            )
            for block, digest in digests.items():
                assert blocks.get(digest) == block, f"{tier.label} block {block}: digest astray"

    def _evict(self, tier: Tier, block: int) -> None:
        del self._blocks[tier][self._digests[tier].pop(block)]
        self._evicted[tier] += 1
        for on_evict in self._on_evict:
            on_evict(tier, block)

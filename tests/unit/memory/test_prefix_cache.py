"""Block hashes and what can be found by them."""

import numpy as np
import pytest

from tandem.memory.block_hash import DIGEST_BYTES, BlockHasher
from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import CachedBlock, PrefixCache, PrefixStats
from tandem.spec.tier import TIERS, Tier

BLOCK = 4
TOKENS = list(range(100, 114))  # three full blocks and two tokens


def make_cache(
    device: int = 6, host: int = 6, *, enabled: bool = True
) -> tuple[PrefixCache, dict[Tier, BlockPool]]:
    pools = {Tier.DEVICE: BlockPool(Tier.DEVICE, device), Tier.HOST: BlockPool(Tier.HOST, host)}
    return PrefixCache(pools, BLOCK, enabled=enabled), pools


def check(cache: PrefixCache, pools: dict[Tier, BlockPool]) -> None:
    cache.check()
    for tier in TIERS:
        pools[tier].check()


def compute(cache: PrefixCache, pool: BlockPool, tokens: list[int]) -> list[int]:
    """Allocate and publish the full blocks of a sequence; returns the block ids."""
    digests: list[bytes] = []
    cache.extend_digests(digests, tokens)
    blocks = pool.allocate(len(digests)).tolist()
    for block, digest in zip(blocks, digests, strict=True):
        cache.publish(pool.tier, block, digest)
    return blocks


def test_digests_cover_full_blocks_only() -> None:
    hasher = BlockHasher(BLOCK)
    assert [len(hasher.digests(TOKENS[:n])) for n in (0, 3, 4, 7, 8, 14)] == [0, 0, 1, 1, 2, 3]
    assert {len(d) for d in hasher.digests(TOKENS)} == {DIGEST_BYTES}


def test_digest_depends_on_everything_before() -> None:
    hasher = BlockHasher(BLOCK)
    changed = [0, *TOKENS[1:]]
    assert not set(hasher.digests(TOKENS)) & set(hasher.digests(changed))
    assert len(set(hasher.digests([7] * 12))) == 3


def test_salts_share_nothing() -> None:
    plain, salted = BlockHasher(BLOCK), BlockHasher(BLOCK, salt=b"another model")
    assert not set(plain.digests(TOKENS)) & set(salted.digests(TOKENS))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_lists_and_arrays_hash_alike(dtype: type) -> None:
    hasher = BlockHasher(BLOCK)
    assert hasher.digests(np.array(TOKENS, dtype=dtype)) == hasher.digests(TOKENS)


def test_a_growing_sequence_reads_new_blocks_only() -> None:
    hasher = BlockHasher(BLOCK)
    digests = hasher.digests(TOKENS)
    forgotten = [-1] * 12 + TOKENS[12:] + [1, 2]
    hasher.extend(digests, forgotten)
    assert digests == hasher.digests([*TOKENS, 1, 2])


def test_match_is_the_longest_published_chain() -> None:
    cache, pools = make_cache()
    blocks = compute(cache, pools[Tier.DEVICE], TOKENS)
    match = cache.match([*TOKENS[:8], 1, 2, 3, 4, 5])
    assert [(m.tier, m.block) for m in match] == [(Tier.DEVICE, b) for b in blocks[:2]]
    assert [m.digest for m in match] == BlockHasher(BLOCK).digests(TOKENS)[:2]
    assert cache.match([1, *TOKENS[1:]]) == []
    check(cache, pools)


@pytest.mark.parametrize(("length", "blocks"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_match_leaves_a_token_to_compute(length: int, blocks: int) -> None:
    cache, pools = make_cache()
    compute(cache, pools[Tier.DEVICE], TOKENS)
    assert len(cache.match(TOKENS[:length])) == blocks


def test_match_spans_both_tiers_and_prefers_the_device() -> None:
    cache, pools = make_cache()
    host = compute(cache, pools[Tier.HOST], TOKENS[:8])
    device = compute(cache, pools[Tier.DEVICE], TOKENS[:4])
    match = cache.match(TOKENS)
    assert [(m.tier, m.block) for m in match] == [(Tier.DEVICE, device[0]), (Tier.HOST, host[1])]
    assert len(cache) == 3
    check(cache, pools)


def test_find_in_looks_at_one_tier_only() -> None:
    cache, pools = make_cache()
    (block,) = compute(cache, pools[Tier.HOST], TOKENS[:4])
    (digest,) = BlockHasher(BLOCK).digests(TOKENS[:4])
    assert cache.find_in(Tier.DEVICE, digest) is None
    assert cache.find_in(Tier.HOST, digest) == CachedBlock(Tier.HOST, block, digest)


def test_first_publisher_wins() -> None:
    cache, pools = make_cache()
    first = compute(cache, pools[Tier.DEVICE], TOKENS[:4])
    second = pools[Tier.DEVICE].allocate(1).tolist()
    digest = BlockHasher(BLOCK).digests(TOKENS)[0]
    assert not cache.publish(Tier.DEVICE, second[0], digest)
    assert not cache.publish(Tier.DEVICE, first[0], digest)
    assert cache.find(digest) == CachedBlock(Tier.DEVICE, first[0], digest)
    assert not pools[Tier.DEVICE].is_cached(second[0])
    check(cache, pools)


def test_a_block_has_one_digest() -> None:
    cache, pools = make_cache()
    (block,) = compute(cache, pools[Tier.DEVICE], TOKENS[:4])
    with pytest.raises(ValueError, match="published with other content"):
        cache.publish(Tier.DEVICE, block, b"x" * DIGEST_BYTES)


def test_only_held_or_leased_blocks_are_published() -> None:
    cache, pools = make_cache()
    digest = b"x" * DIGEST_BYTES
    (transfer,) = pools[Tier.HOST].begin_transfer(1).tolist()
    for block in (transfer, 5):
        with pytest.raises(ValueError, match="cannot publish block"):
            cache.publish(Tier.HOST, block, digest)
    assert cache.find(digest) is None
    check(cache, pools)


def test_block_of_an_aborted_request_is_published_under_lease() -> None:
    cache, pools = make_cache()
    pool = pools[Tier.DEVICE]
    (block,) = pool.allocate(1).tolist()
    pool.release([block], lease_step=1)
    assert cache.publish(Tier.DEVICE, block, BlockHasher(BLOCK).digests(TOKENS)[0])
    pool.complete_step(1)
    assert [m.block for m in cache.match(TOKENS)] == [block]
    check(cache, pools)


def test_eviction_forgets_the_tail_and_keeps_the_other_tiers_copy() -> None:
    cache, pools = make_cache(device=3)
    blocks = compute(cache, pools[Tier.DEVICE], TOKENS)
    pools[Tier.DEVICE].release(blocks, None)
    host = compute(cache, pools[Tier.HOST], TOKENS)
    pools[Tier.DEVICE].allocate(1)
    assert [(m.tier, m.block) for m in cache.match(TOKENS)] == [
        (Tier.DEVICE, blocks[0]),
        (Tier.DEVICE, blocks[1]),
        (Tier.HOST, host[2]),
    ]
    check(cache, pools)


def test_evicted_content_can_be_published_again() -> None:
    cache, pools = make_cache(device=1)
    pool = pools[Tier.DEVICE]
    pool.release(compute(cache, pool, TOKENS[:4]), None)
    pool.release(pool.allocate(1), None)
    assert cache.match(TOKENS) == []
    compute(cache, pool, TOKENS[:4])
    assert len(cache.match(TOKENS)) == 1
    check(cache, pools)


def test_clear_forgets_all_and_leaves_holders_alone() -> None:
    cache, pools = make_cache()
    pool = pools[Tier.DEVICE]
    pool.release(compute(cache, pool, TOKENS), None)
    held = compute(cache, pools[Tier.HOST], TOKENS)
    cache.clear()
    assert len(cache) == 0
    assert cache.match(TOKENS) == []
    assert pools[Tier.HOST].counts().held == len(held)
    assert pool.counts().cached_free == 0
    check(cache, pools)


def test_disabled_cache_finds_and_keeps_nothing() -> None:
    cache, pools = make_cache(enabled=False)
    digests: list[bytes] = []
    cache.extend_digests(digests, TOKENS)
    assert digests == []
    (block,) = pools[Tier.DEVICE].allocate(1).tolist()
    assert not cache.publish(Tier.DEVICE, block, b"x" * DIGEST_BYTES)
    cache.record(10, [])
    assert cache.match(TOKENS) == []
    assert cache.stats == PrefixStats()
    check(cache, pools)


def test_stats_count_recorded_tokens() -> None:
    cache, pools = make_cache()
    compute(cache, pools[Tier.DEVICE], TOKENS[:4])
    compute(cache, pools[Tier.HOST], TOKENS[:8])
    found = cache.match(TOKENS)  # a look does not count
    assert [entry.tier for entry in found] == [Tier.DEVICE, Tier.HOST]
    cache.record(14, found, fetched=1)
    cache.record(6, [])
    assert cache.stats == PrefixStats(
        queries=2, query_tokens=20, device_hit_tokens=4, host_hit_tokens=4, fetched_tokens=4
    )
    assert cache.stats.hit_tokens == 8


def test_what_gives_way_is_counted_and_reported() -> None:
    cache, pools = make_cache(host=2)
    gone: list[tuple[Tier, int]] = []
    cache.subscribe_evictions(lambda tier, block: gone.append((tier, block)))
    device = compute(cache, pools[Tier.DEVICE], TOKENS[:4])
    host = compute(cache, pools[Tier.HOST], TOKENS[:8])
    pools[Tier.HOST].release(host, None)
    cache.drop(Tier.DEVICE, device[0])  # its holder keeps it
    assert pools[Tier.DEVICE].refcount(device[0]) == 1
    pools[Tier.HOST].allocate(1)
    assert gone == [(Tier.DEVICE, device[0]), (Tier.HOST, host[1])]
    assert (cache.stats.evicted_device_blocks, cache.stats.evicted_host_blocks) == (1, 1)
    check(cache, pools)

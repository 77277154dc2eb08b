"""Block states, leases, evictions and two-phase copies of one pool."""

import numpy as np
import pytest

from tandem.memory.pool import BlockPool
from tandem.memory.pool_state import BlockState, PoolCounts, PoolExhausted
from tandem.spec.tier import Tier


def make_pool(num_blocks: int = 4) -> tuple[BlockPool, list[int]]:
    pool, evicted = BlockPool(Tier.HOST, num_blocks), []
    pool.subscribe_evictions(evicted.append)
    return pool, evicted


def states(pool: BlockPool, *blocks: int) -> list[BlockState]:
    pool.check()
    return [pool.state(block) for block in blocks]


def test_allocate_gives_distinct_held_blocks_in_order() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(3)
    assert blocks.dtype == np.int32
    assert blocks.tolist() == [0, 1, 2]
    assert [pool.refcount(b) for b in range(4)] == [1, 1, 1, 0]
    assert pool.counts() == PoolCounts(4, 1, 3, 0, 0, 0)
    pool.check()


def test_exhaustion_changes_nothing_and_tells_the_numbers() -> None:
    pool, evicted = make_pool()
    cached = pool.allocate(1)
    pool.mark_cached(0)
    pool.release(cached, None)
    pool.allocate(2)
    before = pool.counts()
    with pytest.raises(PoolExhausted, match="host pool: 3 blocks needed, 2 available") as error:
        pool.allocate(3)
    with pytest.raises(PoolExhausted):
        pool.begin_transfer(3)
    assert (error.value.tier, error.value.needed, error.value.available) == (Tier.HOST, 3, 2)
    assert pool.counts() == before
    assert evicted == []
    assert pool.is_cached(0)
    pool.check()


def cached_and_free(num_blocks: int) -> tuple[BlockPool, list[int]]:
    pool, evicted = make_pool(num_blocks)
    for block in pool.allocate(num_blocks).tolist():
        pool.mark_cached(block)
        pool.release([block], None)
    return pool, evicted


def test_leased_content_outlives_its_readers_and_goes_first() -> None:
    pool, evicted = cached_and_free(4)
    pool.lease([2, 3], 5)
    assert states(pool, 1, 2, 3) == [BlockState.FREE, BlockState.LEASED, BlockState.LEASED]
    with pytest.raises(PoolExhausted):
        pool.allocate(3)
    pool.complete_step(5)
    assert pool.next_evicted(4) == [2, 3, 0, 1]
    assert pool.allocate(3).tolist() == evicted == [2, 3, 0]
    pool.check()


def test_content_that_is_used_again_meanwhile_does_not_go_first() -> None:
    pool, _ = cached_and_free(3)
    pool.lease([0, 1], 1)
    pool.share([0])
    pool.complete_step(1)
    pool.release([0], None)
    assert pool.next_evicted(3) == [1, 2, 0]
    pool.unmark_cached(1)
    assert (pool.num_blank, pool.next_evicted(2)) == (1, [2])
    pool.check()


@pytest.mark.parametrize("block", [0, 1])
def test_only_free_cached_content_is_leased(block: int) -> None:
    pool, _ = cached_and_free(2)
    pool.unmark_cached(0)
    pool.share([1])
    with pytest.raises(ValueError, match=f"cannot lease block {block}"):
        pool.lease([block], 1)


def test_zero_size_pool() -> None:
    pool, _ = make_pool(0)
    assert pool.allocate(0).tolist() == []
    with pytest.raises(PoolExhausted):
        pool.allocate(1)
    pool.complete_step(3)
    pool.check_idle()


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="-1 blocks"):
        BlockPool(Tier.HOST, -1)
    with pytest.raises(ValueError, match="-1 blocks"):
        make_pool()[0].allocate(-1)


def test_release_without_lease_frees_at_once() -> None:
    pool, _ = make_pool()
    pool.release(pool.allocate(4), None)
    pool.check_idle()
    assert pool.available == 4


def test_leased_blocks_cannot_be_allocated_until_their_step_completes() -> None:
    pool, _ = make_pool()
    pool.release(pool.allocate(4), lease_step=7)
    assert pool.counts() == PoolCounts(4, 0, 0, 4, 0, 0)
    pool.complete_step(6)
    with pytest.raises(PoolExhausted):
        pool.allocate(1)
    pool.complete_step(7)
    pool.check_idle()


def test_a_lease_on_a_completed_step_is_none() -> None:
    pool, _ = make_pool()
    pool.complete_step(5)
    pool.release(pool.allocate(1), lease_step=5)
    pool.check_idle()


def test_one_completion_expires_all_earlier_steps() -> None:
    pool, _ = make_pool()
    for step in (3, 1, 2):
        pool.release(pool.allocate(1), lease_step=step)
    pool.complete_step(3)
    pool.check_idle()


def test_completions_are_monotonic() -> None:
    pool, _ = make_pool()
    pool.complete_step(4)
    pool.complete_step(4)
    assert pool.completed_step == 4
    with pytest.raises(ValueError, match="step 3 completes after step 4"):
        pool.complete_step(3)


def test_last_holder_decides_when_a_block_is_given_back() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.release(blocks, None)
    assert states(pool, 0) == [BlockState.HELD]
    pool.release(blocks, None)
    assert states(pool, 0) == [BlockState.FREE]


def test_an_earlier_holders_lease_outlives_a_later_holder() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.release(blocks, lease_step=9)
    pool.release(blocks, None)
    assert states(pool, 0) == [BlockState.LEASED]
    pool.complete_step(9)
    assert states(pool, 0) == [BlockState.FREE]


def test_a_shorter_lease_does_not_cut_a_longer_one() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.release(blocks, lease_step=9)
    pool.release(blocks, lease_step=3)
    pool.complete_step(8)
    assert states(pool, 0) == [BlockState.LEASED]
    pool.complete_step(9)
    assert states(pool, 0) == [BlockState.FREE]


def test_a_longer_lease_extends_a_shorter_one() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(1)
    pool.share(blocks)
    pool.release(blocks, lease_step=3)
    pool.release(blocks, lease_step=9)
    pool.complete_step(3)
    assert states(pool, 0) == [BlockState.LEASED]
    pool.complete_step(9)
    assert states(pool, 0) == [BlockState.FREE]


def test_leased_cached_block_is_shared_again_and_keeps_its_lease() -> None:
    pool, _ = make_pool()
    blocks = pool.allocate(1)
    pool.mark_cached(0)
    pool.release(blocks, lease_step=5)
    pool.share([0])
    assert states(pool, 0) == [BlockState.HELD]
    pool.release([0], None)
    assert states(pool, 0) == [BlockState.LEASED]
    pool.share([0])
    pool.complete_step(5)
    assert states(pool, 0) == [BlockState.HELD]
    pool.release([0], None)
    assert states(pool, 0) == [BlockState.FREE]


def test_free_cached_block_is_revived_by_sharing() -> None:
    pool, evicted = make_pool()
    pool.allocate(1)
    pool.mark_cached(0)
    pool.release([0], None)
    assert pool.num_free_among([0]) == 1
    pool.share([0])
    assert pool.num_free_among([0]) == 0
    pool.allocate(3)
    assert evicted == []
    assert pool.available == 0
    pool.check()


def test_blank_blocks_go_before_cached_ones() -> None:
    pool, evicted = make_pool()
    pool.allocate(2)
    pool.mark_cached(0)
    pool.release([0, 1], None)
    assert set(pool.allocate(3).tolist()) == {1, 2, 3}
    assert evicted == []
    assert pool.counts().cached_free == 1


def test_eviction_is_least_recently_used_first_and_told_once() -> None:
    pool, evicted = make_pool()
    pool.allocate(4)
    for block in range(4):
        pool.mark_cached(block)
    for block in (2, 0, 3, 1):
        pool.release([block], None)
    pool.share([2])  # a use: 2 is now the most recent
    pool.release([2], None)
    assert pool.allocate(2).tolist() == [0, 3]
    assert evicted == [0, 3]
    assert [pool.is_cached(b) for b in range(4)] == [False, True, True, False]
    pool.check()


@pytest.mark.parametrize("lease_step", [None, 4])
def test_a_chains_tail_is_evicted_before_its_head(lease_step: int | None) -> None:
    pool, evicted = make_pool()
    chain = pool.allocate(4)
    for block in chain:
        pool.mark_cached(int(block))
    pool.release(chain, lease_step)
    pool.complete_step(4)
    pool.allocate(3)
    assert evicted == [3, 2, 1]


def test_unmarked_block_becomes_blank() -> None:
    pool, evicted = make_pool(1)
    pool.allocate(1)
    pool.mark_cached(0)
    pool.release([0], None)
    pool.unmark_cached(0)
    assert pool.counts().cached_free == 0
    pool.allocate(1)
    assert evicted == []
    pool.check()


def test_transfer_completes_into_one_holder() -> None:
    pool, _ = make_pool()
    blocks = pool.begin_transfer(2)
    assert pool.counts() == PoolCounts(4, 2, 0, 0, 2, 0)
    pool.complete_transfer(blocks)
    assert [pool.refcount(int(b)) for b in blocks] == [1, 1]
    pool.release(blocks, None)
    pool.check_idle()


def test_cancelled_transfer_is_leased_while_the_copy_may_write() -> None:
    pool, _ = make_pool()
    pool.cancel_transfer(pool.begin_transfer(2), lease_step=2)
    assert pool.counts().leased == 2
    pool.complete_step(2)
    pool.check_idle()
    pool.cancel_transfer(pool.begin_transfer(2), None)
    pool.check_idle()


def test_transfer_into_a_cached_block_evicts_it() -> None:
    pool, evicted = make_pool(1)
    pool.allocate(1)
    pool.mark_cached(0)
    pool.release([0], None)
    pool.begin_transfer(1)
    assert evicted == [0]
    pool.check()


def test_misuse_is_refused() -> None:
    pool, _ = make_pool()
    transfer = pool.begin_transfer(1)  # block 0
    leased = pool.allocate(1)  # block 1, without cached content
    pool.release(leased, lease_step=3)
    free, held = 3, pool.allocate(1)  # block 2
    for blocks in (transfer, leased, [free]):
        with pytest.raises(ValueError, match="cannot release block"):
            pool.release(blocks, None)
        with pytest.raises(ValueError, match="cannot share block"):
            pool.share(blocks)
    for blocks in (leased, [free], held):
        with pytest.raises(ValueError, match="cannot complete the transfer of block"):
            pool.complete_transfer(blocks)
        with pytest.raises(ValueError, match="cannot cancel the transfer of block"):
            pool.cancel_transfer(blocks, None)
    for block in (0, free):
        with pytest.raises(ValueError, match="cannot publish block"):
            pool.mark_cached(block)
    pool.check()


def test_double_release_in_one_call_is_refused() -> None:
    pool, _ = make_pool()
    pool.allocate(1)
    with pytest.raises(ValueError, match="cannot release block 0: FREE, refcount 0"):
        pool.release([0, 0], None)


def test_check_idle_tells_what_is_held() -> None:
    pool, _ = make_pool()
    pool.allocate(2)
    with pytest.raises(AssertionError, match=r"not idle.*held=2"):
        pool.check_idle()


def test_check_finds_a_corrupted_count() -> None:
    pool, _ = make_pool()
    pool.allocate(2)
    pool._refcount[0] = 0
    with pytest.raises(AssertionError, match="block 0 is HELD, refcount 0"):
        pool.check()

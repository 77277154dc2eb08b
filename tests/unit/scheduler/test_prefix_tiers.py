"""Beginnings of prompts that the device had to make room for, and that come back from the host."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.script import run_all
from tests.support.setups import Setup
from tests.support.step_prices import rising, round_prices
from tests.support.toy_reference import greedy

from tandem.cost.step_prices import StepPrices
from tandem.memory.pool import BlockPool
from tandem.memory.prefix_cache import PrefixCache
from tandem.scheduler.fetching import FetchRule
from tandem.scheduler.prefix_tiers import PrefixTiers
from tandem.scheduler.rows import RowState
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import TIERS, Tier

BLOCK, PROMPT = 4, 25
LAYERS, VOCAB = 2, 50
SETUP = Setup(
    device_blocks=16,
    host_blocks=80,
    block_size=BLOCK,
    host_prefix_share=1.0,
    max_num_seqs=4,
    executor="exact",
)
CHEAP = round_prices(LAYERS, layer_s=0.01, token_s=0.01, block_s=0.001)


def request(name: int, extra: tuple[int, ...] = ()) -> EngineRequest:
    """A prompt of seven blocks that begins like no other's, at least before `extra`."""
    prompt = tuple((5 * i + 7 * name) % 43 + 2 for i in range(PROMPT)) + extra
    params = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)
    return EngineRequest(f"r{name}-{len(extra)}", prompt, params)


def serve(engine: TestEngine, *requests: EngineRequest) -> dict[str, int]:
    """One after the other; tokens must be right. Returns how many each had from the cache."""
    cached: dict[str, int] = {}
    for each in requests:
        result = run_all(engine.core, [each], num_layers=LAYERS)[each.request_id]
        assert result.token_ids == greedy(each, num_layers=LAYERS, vocab_size=VOCAB)[0]
        cached[each.request_id] = result.cached_tokens
    engine.check_idle()
    return cached


@contextmanager
def after_eviction(setup: Setup) -> Iterator[TestEngine]:
    """An engine that has served prompt 0 and so many others that the device has forgotten it."""
    with toy_engine(setup, LAYERS) as engine:
        serve(engine, *(request(name) for name in range(7)))
        digests: list[bytes] = []
        prefix = engine.scheduler.kv.prefix
        prefix.extend_digests(digests, request(0).prompt_token_ids)
        assert all(prefix.find_in(Tier.DEVICE, digest) is None for digest in digests)
        yield engine


@pytest.mark.parametrize("prices", [None, CHEAP])
@pytest.mark.parametrize("seed", range(4))
def test_what_was_evicted_comes_back_from_the_host(seed: int, prices: StepPrices | None) -> None:
    with after_eviction(replace(SETUP, executor_seed=seed, prices=prices)) as engine:
        assert serve(engine, request(0)) == {"r0-0": 24}
        stats = engine.stats.prefix
        assert (stats.host_hit_tokens, stats.fetched_tokens) == (24, 24)
        assert stats.demoted_blocks >= 6
        # it is on the device again, and nothing is brought twice
        assert serve(engine, request(0, (1,))) == {"r0-1": 24}
        assert engine.stats.prefix.fetched_tokens == 24


def test_nothing_is_kept_where_the_link_is_slower_than_computing() -> None:
    dear = round_prices(LAYERS, layer_s=0.01, token_s=0.01, block_s=10.0)
    with after_eviction(replace(SETUP, prices=dear)) as engine:
        assert serve(engine, request(0)) == {"r0-0": 0}
        assert engine.stats.prefix.demoted_blocks == engine.stats.transfers == 0


def test_nothing_is_fetched_that_is_computed_sooner() -> None:
    # a block is worth keeping for the sake of long prompts, but here a launch costs more than all
    prices = round_prices(LAYERS, layer_s=0.01, token_s=0.01, block_s=0.001)
    prices = replace(prices, pages=replace(prices.pages, start_in_s=1.0, start_out_s=1.0))
    with after_eviction(replace(SETUP, prices=prices)) as engine:
        assert serve(engine, request(0)) == {"r0-0": 0}
        assert engine.stats.prefix.demoted_blocks > 0
        assert engine.stats.prefix.fetched_tokens == 0


def test_a_request_waits_for_what_another_has_brought() -> None:
    with after_eviction(SETUP) as engine:
        both = [request(0), request(0, (1, 2))]
        results = run_all(engine.core, both, num_layers=LAYERS)
        assert [results[each.request_id].cached_tokens for each in both] == [24, 24]
        assert engine.stats.prefix.fetched_tokens == 24


def test_others_go_on_while_a_prefix_comes() -> None:
    # in some orders of execution; in others the copy has come by the next step
    assert sum(map(steps_beside_a_fetch, range(6))) > 0


def steps_beside_a_fetch(seed: int) -> int:
    setup = replace(SETUP, device_blocks=24, host_blocks=100, executor_seed=seed)
    with after_eviction(setup) as engine:
        rows, fetched = engine.scheduler.rows, request(0)
        params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
        engine.core.add_request(EngineRequest("other", (9, 9, 9), params))
        while not len(rows.owned()) or not rows.known[rows.owned()[0]] > 3:
            engine.core.step()
        (other,) = rows.owned().tolist()
        engine.core.add_request(fetched)
        steps = 0
        while fetched.request_id in engine.scheduler.running.ids():
            before = int(rows.submitted[other])
            engine.core.step()
            on_its_way = (rows.state == int(RowState.SWAPPING_IN)).any()
            steps += bool(on_its_way and rows.submitted[other] > before)
        engine.core.abort("other")
    return steps


def test_an_aborted_fetch_leaves_nothing() -> None:
    with after_eviction(SETUP) as engine:
        for number in range(12):
            each = request(0, tuple(range(1, 2 + number)))
            engine.core.add_request(each)
            for _ in range(number):
                engine.core.step()
            engine.core.abort(each.request_id)
            while engine.core.has_work():
                engine.core.step()
            engine.check_idle()


def test_copies_keep_to_their_share_and_the_oldest_go_first() -> None:
    with toy_engine(replace(SETUP, host_prefix_share=0.1), LAYERS) as engine:
        for name in range(6):
            serve(engine, request(name))
            engine.scheduler.check()  # no more than eight
        tiers, prefix = engine.scheduler.tiers, engine.scheduler.kv.prefix
        assert tiers is not None
        assert tiers.num_copies == 8
        digests: list[bytes] = []
        prefix.extend_digests(digests, request(0).prompt_token_ids)
        assert not any(prefix.find(digest) for digest in digests)
        assert engine.stats.prefix.evicted_host_blocks > 0


@pytest.mark.parametrize(
    "setup",
    [
        replace(SETUP, host_prefix_share=0.0),
        replace(SETUP, host_blocks=0),
        replace(SETUP, prefix_caching=False),
        replace(SETUP, device_blocks=0, strategy="ride-along", kv_placement="host"),
    ],
    ids=["no share", "no host", "no cache", "no device"],
)
def test_there_is_nothing_to_span(setup: Setup) -> None:
    with toy_engine(setup, LAYERS) as engine:
        serve(engine, *(request(name) for name in (0, 1, 2, 3, 0)))
        assert engine.scheduler.tiers is None
        assert engine.stats.transfers == 0


@pytest.mark.parametrize(("held", "copies"), [(0, 2), (7, 1), (8, 0)])
def test_copying_comes_to_an_end(held: int, copies: int) -> None:
    """Even where fewer blocks may have copies than are about to be evicted, or where rows hold so
    much of the host that each copy would take the room of the one before it.
    """
    pools = {Tier.DEVICE: BlockPool(Tier.DEVICE, 32), Tier.HOST: BlockPool(Tier.HOST, 8)}
    prefix = PrefixCache(pools, BLOCK)
    for number, block in enumerate(pools[Tier.DEVICE].allocate(32).tolist()):
        prefix.publish(Tier.DEVICE, block, bytes([number]) * 16)
        pools[Tier.DEVICE].release([block], None)
    rows = pools[Tier.HOST].allocate(held)
    tiers = PrefixTiers(pools, prefix, 2, FetchRule(None, BLOCK, 64))
    steps = 0
    while tiers.begin(hosted=False) is not None:
        tiers.started(steps)
        tiers.check()
        tiers.arrived()
        for pool in pools.values():
            pool.complete_step(steps)
            pool.check()
        steps += 1
        assert steps < 10
    assert tiers.num_copies == copies
    pools[Tier.HOST].release(rows, None)
    prefix.check()
    assert all(pools[tier].counts().held == 0 for tier in TIERS)


def test_copies_that_are_in_use_count_and_stay() -> None:
    pools = {tier: BlockPool(tier, 32) for tier in TIERS}
    device, host = pools[Tier.DEVICE], pools[Tier.HOST]
    prefix = PrefixCache(pools, BLOCK)
    for number, block in enumerate(device.allocate(32).tolist()):
        prefix.publish(Tier.DEVICE, block, bytes([number]) * 16)
        device.release([block], None)
    tiers = PrefixTiers(pools, prefix, 2, FetchRule(None, BLOCK, 64))
    copy = tiers.begin(hosted=False)
    assert copy is not None
    tiers.started(0)
    tiers.arrived()
    device.complete_step(0)
    used = copy.target.tolist()
    assert len(used) == 2
    host.share(used)  # by a row on the host
    device.allocate(2)  # what was copied is forgotten here: others are the next to go
    assert tiers.begin(hosted=False) is None
    tiers.check()
    host.release(used, None)
    again = tiers.begin(hosted=False)
    assert again is not None
    assert len(again.target) == 2
    tiers.check()


# --- the rule ---------------------------------------------------------------------------------


def rule(block_s: float, flat_tokens: int = 0, start_s: float = 0.0) -> FetchRule:
    """Prefill takes 1 s per token of one layer beyond `flat_tokens`, which read the weights."""
    prices = round_prices(1, block_s=block_s)
    linear = rising(0.0, 1.0)
    if flat_tokens:
        linear = replace(linear, sizes=(1, flat_tokens, flat_tokens + 1000), seconds=(1, 1, 1001))
    pages = replace(prices.pages, start_in_s=start_s, start_out_s=start_s)
    return FetchRule(replace(prices, linear=linear, pages=pages), BLOCK, 100)


def test_fetching_is_compared_with_what_it_spares() -> None:
    # sixteen tokens are spared, which take 16 s
    assert rule(3.9).pays(4, 0, 16, 20, 0)
    assert not rule(4.1).pays(4, 0, 16, 20, 0)
    assert not rule(3.9).pays(5, 0, 16, 20, 0)  # another's block comes before them
    assert not rule(3.0, start_s=5.0).pays(4, 0, 16, 20, 0)


def test_tokens_that_are_computed_beside_decodes_for_nothing_are_not_fetched() -> None:
    # the weights are read for the decodes anyway
    assert not rule(1e-6, flat_tokens=50).pays(4, 0, 16, 20, decodes=10)
    assert rule(1e-6, flat_tokens=50).pays(4, 0, 16, 60, decodes=10)


def test_only_what_may_be_fetched_is_kept() -> None:
    assert rule(3.9).worth_keeping()
    assert not rule(4.1).worth_keeping()
    assert FetchRule(None, BLOCK, 100).worth_keeping()


def test_copies_to_the_host_are_short() -> None:
    assert rule(0.5e-3).copied_beside(hosted=True) == 4
    assert rule(0.5e-3, start_s=1e-3).copied_beside(hosted=True) == 2
    assert rule(1.0).copied_beside(hosted=True) == 1
    # without rows on the host, half the time that reading the weights takes: half a second
    assert rule(1 / 16, flat_tokens=10).copied_beside(hosted=False) == 8

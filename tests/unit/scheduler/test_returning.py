"""Requests that come back computed again at their beginning and copied at their end."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.support.engines import TestEngine, toy_engine
from tests.support.script import drain, run_all
from tests.support.setups import Setup
from tests.support.step_prices import rising, round_prices, slow_link
from tests.support.toy_reference import greedy

from tandem.cost.step_prices import AttentionPrice
from tandem.scheduler.preemption import Beside, PreemptionRule, WayBack
from tandem.scheduler.rows import RowState
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

LAYERS, VOCAB, BLOCK = 2, 50, 4
NOBODY = Beside()
SETUP = Setup(
    device_blocks=9,
    host_blocks=40,
    block_size=BLOCK,
    max_num_seqs=4,
    max_num_batched_tokens=4,  # so that computing again takes several steps
    prefix_caching=False,
    preemption_mode="mix",
    prices=slow_link(LAYERS),
    executor="exact",
)


def requests() -> list[EngineRequest]:
    params = SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
    return [EngineRequest(str(i), (i + 2, 3, 5, 8), params) for i in range(4)]


def check_tokens(engine: TestEngine) -> None:
    results = run_all(engine.core, requests(), num_layers=LAYERS)
    for each in requests():
        wanted, _ = greedy(each, num_layers=LAYERS, vocab_size=VOCAB)
        assert results[each.request_id].token_ids == wanted
    engine.check_idle()


@contextmanager
def returning(copied: bool) -> Iterator[tuple[TestEngine, int]]:
    """An engine in which a row returns, before or after the copy of its last blocks has come."""
    with toy_engine(SETUP, LAYERS) as engine:
        for each in requests():
            engine.core.add_request(each)
        rows = engine.scheduler.rows
        while True:
            engine.core.step()
            found = (rows.state == int(RowState.RETURNING)).nonzero()[0].tolist()
            if found and (rows.arriving[found[0]] == 0) == copied:
                break
        yield engine, found[0]


def test_only_the_last_blocks_are_copied_and_the_host_keeps_all_until_they_are_there() -> None:
    with returning(copied=False) as (engine, row):
        rows, pools = engine.scheduler.rows, engine.scheduler.kv.pools
        again, copied = int(rows.num_blocks[row]), int(rows.arriving[row])
        assert rows.upto[row] == again * BLOCK
        assert rows.submitted[row] <= again * BLOCK
        assert again > copied > 0  # a token costs a second, a block's copy ten
        assert pools[Tier.DEVICE].counts().in_transfer == int(rows.arriving.sum())
        assert pools[Tier.HOST].counts().held >= again + copied
        while row in engine.scheduler.running.returning:
            engine.core.step()
        assert rows.num_blocks[row] >= again + copied
        drain(engine.core)
        engine.check_idle()


def test_tokens_are_those_of_a_request_that_never_left() -> None:
    with toy_engine(SETUP, LAYERS) as engine:
        check_tokens(engine)
        assert engine.scheduler.running.returning.num_begun > 0
        assert engine.stats.transfers == 2 * engine.stats.preemptions


@pytest.mark.parametrize("copied", [False, True])
def test_a_row_may_die_on_its_way_back(copied: bool) -> None:
    with returning(copied) as (engine, row):
        engine.core.abort(str(engine.scheduler.rows.request_ids[row]))
        drain(engine.core)
        engine.check_idle()


@pytest.mark.parametrize("copied", [False, True])
@pytest.mark.parametrize("dies", [False, True])
def test_a_row_that_is_preempted_on_its_way_back_is_on_the_host_as_before(
    copied: bool, dies: bool
) -> None:
    with returning(copied) as (engine, row):
        scheduler, rows = engine.scheduler, engine.scheduler.rows
        request_id, tokens = str(rows.request_ids[row]), int(rows.known[row]) - 1
        scheduler.running.preempt(row)
        if dies:
            engine.core.abort(request_id)
        while rows.state[row] == int(RowState.DRAINING):
            scheduler.check()
            engine.core.step()
        if not dies:
            assert str(rows.request_ids[row]) == request_id
            assert rows.submitted[row] == rows.computed[row] == tokens
            assert rows.num_host_blocks[row] == rows.num_blocks[row] or (
                row in scheduler.running.returning  # again, in the same step
            )
        drain(engine.core)
        engine.check_idle()


def test_what_the_device_has_cached_is_neither_copied_nor_computed() -> None:
    """Whatever is said of preempted KV: here the leading blocks are there, the others copied."""
    setup = replace(SETUP, prefix_caching=True, preemption_mode="swap", prices=None)
    with toy_engine(setup, LAYERS) as engine:
        check_tokens(engine)
        assert engine.scheduler.running.returning.num_begun > 0


# --- which way ------------------------------------------------------------------------------------


def rule(*, always: bool = False, block_s: float = 4.0) -> PreemptionRule:
    """A token takes a second, and its block's copy as long as the four of it."""
    prices = replace(round_prices(1, block_s=block_s), linear=rising(0.0, 1.0))
    return PreemptionRule(prices, BLOCK, max_tokens=2048, always_both=always)


def flat() -> PreemptionRule:
    """Up to 64 tokens take as long as one."""
    linear = replace(rising(0.0), sizes=(1, 64, 1064), seconds=(1.0, 1.0, 1001.0))
    return replace(rule(), prices=replace(rule().prices, linear=linear))


def way_back(
    rule: PreemptionRule, beside: Beside = NOBODY, *, ready: int = 0, queued: int = 0
) -> WayBack:
    return rule.way_back(40, ready, queued, beside)


def test_both_parts_end_together() -> None:
    assert way_back(rule()) == WayBack(5, 20.0)


def test_more_is_computed_behind_other_copies() -> None:
    assert way_back(rule(), queued=4) == WayBack(7, 28.0)


def test_what_is_ready_is_spared_both_ways() -> None:
    assert way_back(rule(), ready=4) == WayBack(7, 12.0)


def test_a_block_at_least_is_copied() -> None:
    assert way_back(rule(block_s=1e3)).head == 9


def test_nothing_is_computed_where_others_would_wait_longer_than_it_spares() -> None:
    assert way_back(rule(), Beside(2)) == WayBack(0, 40.0)
    assert way_back(rule(always=True), Beside(2)).head > 0


def test_nothing_is_computed_where_prompts_wait_for_it() -> None:
    assert way_back(flat(), Beside(16, prompts=True)) == WayBack(0, 40.0)


def test_tokens_that_weights_hide_are_computed_beside_any_number_of_others() -> None:
    """After the two sweeps under way, in a third of a second like them."""
    assert way_back(flat(), Beside(16)) == WayBack(9, 4.0)


def test_computing_waits_for_the_sweeps_under_way() -> None:
    priced = replace(flat().prices, device=AttentionPrice(0.0, 1.0, 0.0, 0.0))
    attends = replace(flat(), prices=priced, always_both=True)
    assert way_back(attends, Beside(1, keys=5.0)) == WayBack(3, 30.0)
    assert way_back(attends, Beside(1, keys=15.0)) == WayBack(0, 40.0)  # three take longer

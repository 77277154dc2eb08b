"""What becomes of preempted KV, chosen for each request."""

from dataclasses import replace

import pytest
from tests.support.engines import toy_engine
from tests.support.script import run_all
from tests.support.setups import Setup
from tests.support.step_prices import rising, round_prices
from tests.support.toy_reference import greedy

from tandem.cost.step_prices import StepPrices
from tandem.scheduler.preemption import Beside, PreemptionRule
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

LAYERS, VOCAB = 2, 50
SETUP = Setup(
    device_blocks=9,
    host_blocks=40,
    block_size=4,
    max_num_seqs=4,
    prefix_caching=False,
    preemption_mode="auto",
)


def requests() -> list[EngineRequest]:
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    return [EngineRequest(str(i), (i + 2, 3, 5, 8), params) for i in range(4)]


def crowded(prices: StepPrices | None) -> tuple[int, int]:
    """Preemptions and copies of four requests on a device with room for one and a half."""
    with toy_engine(replace(SETUP, prices=prices), LAYERS) as engine:
        results = run_all(engine.core, requests(), num_layers=LAYERS)
        for each in requests():
            wanted, _ = greedy(each, num_layers=LAYERS, vocab_size=VOCAB)
            assert results[each.request_id].token_ids == wanted
        engine.check_idle()
        return engine.stats.preemptions, engine.stats.transfers


def test_kv_is_swapped_where_the_link_is_faster() -> None:
    preemptions, transfers = crowded(round_prices(LAYERS, token_s=1.0, block_s=0.1))
    assert preemptions > 0
    assert transfers == 2 * preemptions


@pytest.mark.parametrize("prices", [None, round_prices(LAYERS, token_s=1.0, block_s=1e3)])
def test_kv_is_computed_again_where_it_is_not_or_nothing_is_known(
    prices: StepPrices | None,
) -> None:
    preemptions, transfers = crowded(prices)
    assert preemptions > 0
    assert transfers == 0


def test_long_requests_are_swapped_and_short_ones_computed_again() -> None:
    """Among decodes that read the weights anyway, a few tokens cost nothing."""
    prices = round_prices(1, block_s=1.0)
    flat = replace(rising(0.0), sizes=(1, 64, 1064), seconds=(1.0, 1.0, 1001.0))
    rule = PreemptionRule(replace(prices, linear=flat), block_size=4, max_tokens=2048)
    assert not rule.swaps(blocks=10, ready=0, computed=40, beside=Beside(20))
    assert rule.swaps(blocks=50, ready=0, computed=200, beside=Beside(20))
    assert not rule.swaps(
        blocks=50, ready=160, computed=200, beside=Beside(20)
    )  # others keep the rest


def test_both_ways_over_the_link_count() -> None:
    prices = round_prices(1, token_s=1.0, block_s=1.9)
    rule = PreemptionRule(replace(prices, linear=rising(0.0, 1.0)), 4, max_tokens=2048)
    assert rule.swaps(blocks=4, ready=0, computed=17, beside=Beside())
    assert not rule.swaps(blocks=5, ready=0, computed=17, beside=Beside())

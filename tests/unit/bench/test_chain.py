"""The chain that a step is held against, summed by hand."""

from dataclasses import replace

import pytest
from tests.unit.engine.small_model import SPEC

from tandem.bench.chain import ChainRates, chain_s
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import WeightPlacement
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec

RATES = ChainRates(device=1e9, link=1e7, host=1e8)
DENSE = replace(SPEC, num_layers=8)
MIXED = replace(DENSE, experts=ExpertSpec(count=8, per_token=2, intermediate_size=32))
ATTENTION = 2 * (2 * 64 * 64 + 2 * 64 * 32)
MLP = 2 * 3 * 64 * 128
ROUTER, EXPERT = 2 * 64 * 8, 2 * 3 * 64 * 32
HEAD_S = 2 * 1000 * 64 / RATES.device
REST_S = ATTENTION / RATES.device


def plan(*weights: WeightPlacement, rules: tuple[CpuRule, ...] = ()) -> OnlinePlan:
    return OnlinePlan(
        strategy="gpu-only",
        weights=weights,
        cpu_rules=rules,
        device_blocks=8,
        host_blocks=0,
        block_size=16,
        max_model_len=64,
        max_num_seqs=1,
        max_num_batched_tokens=64,
    )


def seconds(spec: ModelSpec, planned: OnlinePlan, tokens: int = 1) -> float:
    return chain_s(planned, spec, DType.BFLOAT16, RATES, tokens)


def test_each_byte_counts_where_it_is_read() -> None:
    mixed = plan(
        WeightPlacement(0, 2), WeightPlacement(3, 5, "streamed"), WeightPlacement(6, 6, "cpu"),
        WeightPlacement(7, 7, "cpu-mlp"),
    )  # fmt: skip
    layer = ATTENTION + MLP
    expected = 3 * layer / RATES.device + 3 * layer / RATES.link + layer / RATES.host
    expected += REST_S + MLP / RATES.host + HEAD_S
    assert seconds(DENSE, mixed) == pytest.approx(expected)
    stays = plan(WeightPlacement(0, 5), WeightPlacement(6, 7, "streamed"))
    assert seconds(DENSE, stays) == pytest.approx(8 * layer / RATES.device + HEAD_S)


@pytest.mark.parametrize(("tokens", "touched"), [(1, 1 / 4), (3, 1 - (3 / 4) ** 3)])
def test_of_experts_those_count_that_tokens_go_to(tokens: int, touched: float) -> None:
    resident = plan(WeightPlacement(0, 7))
    needed = ATTENTION + ROUTER + 8 * touched * EXPERT
    assert seconds(MIXED, resident, tokens) == pytest.approx(8 * needed / RATES.device + HEAD_S)


def test_both_sides_of_a_mixture_work_at_once() -> None:
    split = plan(WeightPlacement(0, 7, "cpu-mlp", experts=(0, 2, 5)))
    there_s = 5 / 4 * EXPERT / RATES.host
    expected = 8 * (REST_S + ROUTER / RATES.device + there_s) + HEAD_S
    assert seconds(MIXED, split) == pytest.approx(expected)
    most = plan(WeightPlacement(0, 7, "cpu-mlp", experts=(0, 1, 2, 3, 4, 5, 6)))
    slow = replace(RATES, host=1e12)
    here_s = 7 / 4 * EXPERT / RATES.device
    found = chain_s(most, MIXED, DType.BFLOAT16, slow)
    assert found == pytest.approx(8 * (REST_S + ROUTER / RATES.device + here_s) + HEAD_S)


def test_of_a_mixture_that_is_streamed_all_comes_but_what_stays() -> None:
    rules = (CpuRule(1, (2, 3, 4, 5, 6, 7)),)
    streamed = plan(WeightPlacement(0, 7, "host-mlp", experts=(1, 3)), rules=rules)
    touched = 1 - (3 / 4) ** 16
    stays_s = (ROUTER + 2 * touched * EXPERT) / RATES.device
    each_s = REST_S + stays_s + 6 * EXPERT / RATES.link
    assert seconds(MIXED, streamed, 16) == pytest.approx(8 * each_s + HEAD_S)
    # of one token, two layers stay in their slots, and the CPU computes its part of the others
    here_s = REST_S + (ROUTER + 2 * EXPERT) / RATES.device
    split_s = REST_S + ROUTER / RATES.device + 6 / 4 * EXPERT / RATES.host
    assert seconds(MIXED, streamed) == pytest.approx(2 * here_s + 6 * split_s + HEAD_S)

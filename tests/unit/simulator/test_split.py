"""Requests that are too long for the accelerator, which the plan splits over both tiers."""

from dataclasses import replace

import pytest
from tests.unit.simulator.setups import Case, planned, serve, workload

from tandem.planner.search import Search


def test_requests_have_the_share_of_the_accelerator_that_is_planned() -> None:
    """One of 60 blocks where there are 40 on the accelerator: the host attends to a third of it,
    and not to two thirds.
    """
    plan = planned(Case("ride-along", 0, 1, device_blocks=40), "3800", "40", 2)
    requests = workload("3800", "40", 1)

    def time_s(split_blocks: int) -> float:
        online = replace(plan.plan, kv_placement="auto", max_num_seqs=2, split_blocks=split_blocks)
        return serve(replace(plan, plan=online), requests).outcome.duration_s

    usual, planned_s = time_s(0), time_s(39)
    assert time_s(20) == usual
    assert planned_s < 0.8 * usual


@pytest.mark.parametrize(("prompt", "generate"), [("3800", "40"), ("200", "3600")])
def test_what_is_predicted_of_it_is_what_comes_of_it(prompt: str, generate: str) -> None:
    """Neither prompts nor outputs see keys on the host before they exceed the others' share."""
    plan = planned(Case("ride-along", 0, 1, device_blocks=40), prompt, generate, 2)
    online = replace(plan.plan, kv_placement="auto", split_blocks=40)
    served = serve(replace(plan, plan=online), workload(prompt, generate, 1))
    search = Search(replace(plan.question, objective="latency"))
    share = 40 / search.footprint.blocks_per_row
    assert 0.5 < share < 0.8
    assert plan.option is not None
    candidate = plan.option.candidate._replace(device_share=share)
    predicted = search.predictor.predict(candidate).rates
    tokens = int(generate)
    expected_s = predicted.ttft_s + (tokens - 1) * predicted.tpot_s
    assert served.outcome.duration_s == pytest.approx(expected_s, rel=0.1)

"""What becomes of preempted KV where nobody has said."""

from dataclasses import replace

import pytest

from tandem.plan.online import OnlinePlan
from tandem.plan.preempted import preemption_mode
from tandem.plan.weights import WeightPlacement

APART = OnlinePlan(
    strategy="rendezvous-ahead",
    weights=(WeightPlacement(0, 7),),
    device_blocks=10,
    host_blocks=20,
    block_size=64,
    max_model_len=640,
    max_num_seqs=6,
    max_num_batched_tokens=128,
    max_host_seqs=4,
    max_device_seqs=2,
)


def test_it_is_copied_where_numbers_in_both_tiers_are_planned() -> None:
    assert preemption_mode(APART, None, converts=False) == "swap"
    assert preemption_mode(replace(APART, strategy="auto"), None, converts=False) == "swap"


@pytest.mark.parametrize(
    "plan",
    [
        replace(APART, max_device_seqs=0),
        replace(APART, prompts_on_device=True),
        replace(APART, strategy="gpu-only", max_host_seqs=0, max_device_seqs=0),
    ],
)
def test_it_is_computed_again_elsewhere(plan: OnlinePlan) -> None:
    assert preemption_mode(plan, None, converts=False) == "recompute"


def test_it_is_not_rounded_on_the_way_unasked() -> None:
    assert preemption_mode(APART, None, converts=True) == "recompute"
    assert preemption_mode(APART, "swap", converts=True) == "swap"


def test_what_was_asked_for_holds() -> None:
    assert preemption_mode(APART, "recompute", converts=False) == "recompute"
    assert preemption_mode(replace(APART, max_device_seqs=0), "mix", converts=False) == "mix"

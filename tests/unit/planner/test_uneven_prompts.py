"""Prompts of unlike lengths cost the attention that their own lengths ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.planner.candidate import Candidate
from tandem.planner.question import Lengths
from tandem.planner.sweep_load import decode_load
from tandem.spec.tier import Tier
from tandem.spec.workload import RequestShape, Workload

CHUNK = 4096
"""Of which attention is counted in whole pairs."""


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=30))
def test_a_mean_token_sees_as_many_as_it_does_in_its_own_prompt(prompts: list[int]) -> None:
    shapes = tuple(RequestShape(prompt, 8) for prompt in prompts)
    lengths = Lengths.of(Workload("drawn", shapes))
    load = decode_load(Candidate("gpu-only", 0, 0, 0), lengths, CHUNK).main
    pairs = sum(prompt * (prompt + 1) / 2 for prompt in prompts)  # a token sees itself, too
    found = load.seen(Tier.DEVICE, 0).pairs / CHUNK
    assert found == pytest.approx(pairs / sum(prompts), abs=0.51 / CHUNK)


def test_scaled_prompts_are_as_uneven() -> None:
    shapes = tuple(RequestShape(prompt, 8) for prompt in (100, 900))
    lengths = Lengths.of(Workload("drawn", shapes))
    assert lengths.prompt_seen_tokens == pytest.approx((100**2 + 900**2) / 1000)

"""Attention within a batch's prompts."""

import math

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.prompts import PromptLoad
from tandem.planner.offline.times import BlockTimes
from tandem.spec.tier import Tier

LENGTHS = (200, 1000)


def pairs(length: int, window: int) -> int:
    return sum(min(n, window or n) for n in range(1, length + 1))


def load(lengths: tuple[int, ...]) -> PromptLoad:
    mean = sum(lengths) // len(lengths)
    squares = math.fsum(n * n for n in lengths) / len(lengths)
    return PromptLoad(sum(lengths), len(lengths), len(lengths), mean, squares / mean)


@pytest.mark.parametrize("window", [0, 300])
def test_tokens_of_equal_prompts_see_those_before_them(window: int) -> None:
    found = load((500, 500)).seen(Tier.DEVICE, window)
    assert found.pairs == 2 * pairs(500, window)


def test_tokens_of_uneven_prompts_see_more_than_those_of_mean_ones() -> None:
    found = load(LENGTHS).seen(Tier.DEVICE, 0)
    assert found.pairs == pytest.approx(sum(pairs(n, 0) for n in LENGTHS), rel=1e-6)
    assert found.pairs > 1.4 * load((600, 600)).seen(Tier.DEVICE, 0).pairs
    assert found.tokens == sum(LENGTHS)


def test_so_their_pass_takes_longer() -> None:
    block = BlockCandidate(1, 0, 8, 0, 0)
    even, uneven = (
        BlockTimes(ask("llama-3.1-8b", "a100-80", "server-genoa", prompt=prompt, requests=8))
        for prompt in ("2050", "100-4000")
    )
    assert even.question.lengths.prompt_tokens == pytest.approx(
        uneven.question.lengths.prompt_tokens, rel=0.1
    )
    even_s, uneven_s = (
        times.bound.prefill_s(block) / times.question.lengths.prompt_tokens
        for times in (even, uneven)
    )
    assert uneven_s > even_s

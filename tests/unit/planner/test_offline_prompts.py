"""Attention within a batch's prompts."""

import math
from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask

from tandem.bench.online.cell import Load
from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.prompt_sizes import PromptSizes
from tandem.planner.offline.prompts import PromptLoad
from tandem.planner.offline.sequence_room import SequenceRoom
from tandem.planner.offline.times import BlockTimes
from tandem.planner.question import Lengths
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


def test_prompts_of_any_block_have_room_together() -> None:
    """Of LLaMA-65B's 2,040 requests one of the fourth block's 340 had none, and ran alone."""
    workload = Load(64, 16).workload(2040)
    longest = sorted(workload.requests, key=lambda shape: -shape.generated_tokens)
    tokens = [sum(s.prompt_tokens for s in longest[n : n + 340]) for n in range(0, 2040, 340)]
    sizes = PromptSizes(Lengths.of(workload), 64, 2048)
    mean = sum(tokens) / len(tokens)
    assert mean < max(tokens) < sizes.together_tokens(340) < 1.02 * mean
    assert sizes.together_tokens(2040) == sum(tokens)
    assert sizes.together_tokens(1) <= max(shape.prompt_tokens for shape in longest)


def test_of_a_prefix_only_what_prompts_have_is_made_anew() -> None:
    lengths = Lengths.of(Load(64, 16).workload(200))
    room = SequenceRoom(lengths, 64)
    whole = sum(shape.prompt_tokens >= 64 for shape in lengths.shapes)
    assert 0 < whole < 200
    assert room.made_tokens(64) == pytest.approx(64 * whole / 200)
    assert room.made_tokens(0) == 0


def test_blocks_of_all_passes_are_counted_one_by_one() -> None:
    lengths = Lengths.of(Load(64, 128).workload(50))
    room = SequenceRoom(lengths, 64)
    for made in (0, 64):
        held = [
            (shape.prompt_tokens + n) // 64 + 1 - min(made, shape.prompt_tokens) // 64
            for shape in lengths.shapes
            for n in range(shape.generated_tokens - 1)
        ]
        assert room.blocks_in_passes(made) == pytest.approx(sum(held) / len(held))


def test_a_link_brings_no_prefixes_that_prompts_are_too_short_for() -> None:
    """Half of OPT-30B's prompts of 58 to 70 tokens have no whole block to keep activations of."""
    question = ask("opt-6.7b", "a10g", "server-genoa", prompt="64", generate="16", requests=200)
    shapes = Load(64, 16).workload(200)
    alike = BlockTimes(question)
    unlike = BlockTimes(replace(question, lengths=Lengths.of(shapes)))
    kvpr = BlockCandidate(4, 0, 0, 20, 0, recomputed_tokens=64)
    made = unlike.footprint.room.made_tokens(64) / 64
    none = replace(kvpr, recomputed_tokens=0)
    alike_s, unlike_s = (
        times.bound.decode_busy(none).link_s - times.bound.decode_busy(kvpr).link_s
        for times in (alike, unlike)
    )
    assert alike_s > unlike_s > 0
    assert unlike_s == pytest.approx(made * alike_s, rel=0.02)

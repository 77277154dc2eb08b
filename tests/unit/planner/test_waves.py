"""Jobs whose requests begin together, in coarse steps."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import scaled

from tandem.planner.sweep_times import SweepTimes
from tandem.planner.wave_parts import part_of
from tandem.planner.waves import Home, Wave
from tandem.spec.workload import RequestShape

NOWHERE = Home(0, 0, reserves=False)


def a_second(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
    """Every sweep."""
    return 1.0


def alike(count: int, prompt: int, generated: int) -> list[RequestShape]:
    return [RequestShape(prompt, generated)] * count


def on_device(blocks: int, places: int, block_size: int = 10) -> Wave:
    return Wave((Home(blocks, places, reserves=True), NOWHERE), places, block_size, 100)


@pytest.mark.parametrize(
    ("requests", "places", "expected"), [(1, 4, 31), (4, 4, 31), (5, 4, 62), (12, 4, 93)]
)
def test_with_memory_for_all_ends_places_are_taken_in_turns(
    requests: int, places: int, expected: float
) -> None:
    # 10 tokens are read in one sweep; of 31 that are made the first comes with them
    found = on_device(1000, places).job_s(alike(requests, 10, 31), a_second)
    assert found == pytest.approx(expected, abs=2)


def test_prompts_are_read_one_after_the_other() -> None:
    # eight prompts of 250 tokens at 100 a sweep, then the last one's tokens
    found = on_device(1000, 8).job_s(alike(8, 250, 11), a_second)
    assert found == pytest.approx(20 + 10, abs=2)


def test_requests_wait_for_their_tokens_while_others_read_and_not_for_their_turn() -> None:
    """Three prompts fill a sweep each, of ten seconds; tokens take one."""

    def seconds(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return 10.0 if prompt_tokens else 1.0

    lived = on_device(1000, 3).live_through(alike(3, 100, 11), seconds)
    assert lived.job_s == pytest.approx(30 + 10, abs=1)
    assert lived.decoding_s == pytest.approx([20 + 8, 10 + 9, 10], abs=1)
    assert list(lived.homes) == [0, 0, 0]


def test_first_tokens_come_with_the_sweep_that_reads_the_end_of_a_prompt() -> None:
    """Of four prompts of 26 tokens, 100 fit in a sweep: three first tokens, and one in the next."""

    def seconds(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return 1.0 + prompt_tokens

    lived = on_device(1000, 4).live_through(alike(4, 26, 11), seconds)
    whole = on_device(1000, 4).live_through(alike(4, 25, 11), seconds)
    assert whole.decoding_s == pytest.approx([10] * 4)
    assert lived.decoding_s == pytest.approx([1 + 4 + 9] * 3 + [10], abs=0.5)


def test_requests_that_are_computed_again_are_under_way_meanwhile() -> None:
    plenty, short = (
        on_device(blocks, 10).live_through(alike(10, 1, 100), a_second) for blocks in (200, 50)
    )
    assert max(plenty.decoding_s) == pytest.approx(99, abs=1)
    assert min(short.decoding_s) == pytest.approx(99, abs=1)
    assert max(short.decoding_s) > 140


def test_requests_in_step_outgrow_memory_and_some_are_computed_again() -> None:
    """Ten of ten blocks in the end have memory for half of that: two turns take longer than one,
    and less than one turn after the other with room for all ends.
    """
    shapes = alike(10, 1, 100)
    plenty, short = (on_device(blocks, 10).job_s(shapes, a_second) for blocks in (200, 50))
    assert plenty == pytest.approx(100, abs=2)
    assert 1.4 * plenty < short <= 2 * plenty + 5


def test_what_is_computed_again_is_read_again() -> None:
    """The prompts of those that are preempted have grown by their outputs."""

    def reads(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return prompt_tokens

    once, again = (on_device(blocks, 10).job_s(alike(10, 1, 100), reads) for blocks in (200, 50))
    assert once == pytest.approx(10)
    assert again > 10 + 100


def test_on_the_host_tokens_take_as_many_sweeps_as_cohorts_do() -> None:
    homes = Home(10, 1, reserves=True), Home(100, 3, reserves=False, sweeps_per_token=5.0)
    wave = Wave(homes, 4, 10, 100)
    assert wave.job_s(alike(4, 10, 21), a_second) == pytest.approx(101, abs=3)


def test_what_no_pool_holds_to_its_end_ends_all_the_same() -> None:
    homes = Home(4, 2, reserves=True), Home(3, 2, reserves=False)
    assert Wave(homes, 2, 10, 100).job_s(alike(3, 20, 41), a_second) > 100


def test_a_pool_that_nobody_may_be_in_holds_no_request_to_its_end() -> None:
    """Requests longer than their own pool, beside a larger one with no place."""
    homes = Home(100, 0, reserves=True), Home(3, 2, reserves=False)
    assert Wave(homes, 2, 10, 100).job_s(alike(3, 20, 41), a_second) > 100


def test_sums_that_round_below_the_end_take_no_sweep_more() -> None:
    homes = NOWHERE, Home(100, 1, reserves=False, sweeps_per_token=17.0)
    assert Wave(homes, 1, 16, 100).job_s(alike(1, 1, 97), a_second) == pytest.approx(1633)


@pytest.mark.parametrize("blocks", [20000, 4000, 2000])
@pytest.mark.parametrize("generated", [(290, 310), (50, 600)])
def test_a_part_takes_as_long_as_the_whole(blocks: int, generated: tuple[int, int]) -> None:
    """With room for all, and with less, of which some are computed again."""

    def seconds(device_tokens: float, host_tokens: float, prompt_tokens: float) -> float:
        return 1 + 1e-4 * device_tokens + 0.1 * (prompt_tokens > 0) + 0.01 * prompt_tokens

    draw = random.Random(0)
    shapes = [RequestShape(100, draw.randint(*generated)) for _ in range(1500)]
    whole = Wave((Home(blocks, 240, reserves=True), NOWHERE), 240, 16, 512)
    part, those = part_of(whole, shapes)
    assert len(those) < 1200
    assert part.job_s(those, seconds) == pytest.approx(whole.job_s(shapes, seconds), rel=0.04)


def test_a_few_requests_are_lived_through_one_by_one() -> None:
    whole, shapes = on_device(200, 40), alike(100, 10, 31)
    assert part_of(whole, shapes) == (whole, shapes)


@settings(max_examples=scaled(150), deadline=None)
@given(
    shapes=st.lists(st.builds(RequestShape, st.integers(1, 200), st.integers(1, 90)), min_size=1),
    pools=st.tuples(st.integers(0, 60), st.integers(1, 60)),
    places=st.integers(1, 12),
    per_token=st.sampled_from((1.0, 4.0, 17.0)),
    on_device=st.booleans(),
)
def test_any_job_ends_and_is_no_shorter_than_its_tokens_take(
    shapes: list[RequestShape],
    pools: tuple[int, int],
    places: int,
    per_token: float,
    on_device: bool,
) -> None:
    device, host = pools
    homes = Home(device, places * on_device, True), Home(host, places, False, per_token)
    lived = Wave(homes, places, 16, 64).live_through(shapes, a_second)
    found = lived.job_s
    for shape, home, decoding_s in zip(shapes, lived.homes, lived.decoding_s, strict=True):
        pace = homes[home].sweeps_per_token
        assert -1e-6 <= decoding_s <= found + 1
        if device == 0 or not on_device:  # all of its tokens in one home
            assert decoding_s >= (shape.generated_tokens - 1) * pace - 1
    decoded = [shape.generated_tokens - 1 for shape in shapes]
    assert found >= max(decoded) - 1e-6
    assert found >= sum(decoded) / places - 1e-6
    assert found >= sum(shape.prompt_tokens for shape in shapes) / 64 - 1e-6


def test_sweeps_between_those_that_were_timed() -> None:
    times = SweepTimes(1.0, 0.01, 0.1, ((1.0, 2.0), (101.0, 4.0)), hosted_s=7.0)
    assert times(100, 0, 0) == pytest.approx(2.0)
    assert times(100, 10, 0) == pytest.approx(3.0)
    assert times(0, 10, 0) == 7.0
    assert times(0, 0, 1) == pytest.approx(3.0)
    assert times(0, 0, 51) == pytest.approx(4.0)
    assert times(0, 0, 202) == pytest.approx(9.0)

"""Jobs whose requests begin together, in coarse steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.planner.sweep_times import SweepTimes
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


@settings(max_examples=150, deadline=None)
@given(
    shapes=st.lists(st.builds(RequestShape, st.integers(1, 200), st.integers(1, 90)), min_size=1),
    pools=st.tuples(st.integers(0, 60), st.integers(1, 60)),
    places=st.integers(1, 12),
    per_token=st.sampled_from((1.0, 4.0, 17.0)),
)
def test_any_job_ends_and_is_no_shorter_than_its_tokens_take(
    shapes: list[RequestShape], pools: tuple[int, int], places: int, per_token: float
) -> None:
    device, host = pools
    homes = Home(device, places, reserves=True), Home(host, places, False, per_token)
    found = Wave(homes, places, 16, 64).job_s(shapes, a_second)
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

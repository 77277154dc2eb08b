"""How many prompts begin in a sweep."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.planner.chunks import chunks_per_sweep


@given(mean=st.floats(1e-3, 6.0), prompt=st.floats(10, 1000), room=st.floats(2.0, 50.0))
def test_in_the_mean_as_many_tokens_are_read_as_are_needed(
    mean: float, prompt: float, room: float
) -> None:
    tokens_of_room = round(room * max(1.0, mean) * prompt)
    chunks = chunks_per_sweep(mean * prompt, prompt, tokens_of_room)
    assert sum(weight for weight, _ in chunks.weighted) == pytest.approx(chunks.share)
    read = sum(weight * tokens for weight, tokens in chunks.weighted)
    # what a full sweep leaves comes in another one, and the last number stands for all above it
    assert read == pytest.approx(mean * prompt, rel=0.12, abs=1.0)
    assert read <= mean * prompt * 1.01 + 1.0
    assert max(tokens for _, tokens in chunks.weighted) <= tokens_of_room


def test_without_room_for_several_a_sweep_has_one_part_or_what_is_left_or_none() -> None:
    chunks = chunks_per_sweep(50.0, 400.0, 300)
    parts, rests = 50 / 300, 50 / 400 * (1 - 50 / 300) * (2 - 400 / 300)
    assert chunks.weighted == ((pytest.approx(parts), 300), (pytest.approx(rests), 1))
    assert chunks.share == pytest.approx(parts + rests)
    assert chunks.mean == round((50 + rests) / chunks.share)


def test_nothing_is_left_of_prompts_that_follow_each_other_or_fill_their_chunks() -> None:
    busy = chunks_per_sweep(300.0, 400.0, 300)
    assert busy.weighted == ((1.0, 300),)
    whole = chunks_per_sweep(50.0, 600.0, 300)
    assert whole.weighted == ((pytest.approx(50 / 300), 300),)
    assert chunks_per_sweep(50.0, 200.0, 300).weighted == ((pytest.approx(50 / 200), 200),)

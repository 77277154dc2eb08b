"""Changes of plans for jobs whose requests are all there at once, and homes of their layers."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.candidate import Candidate
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.search.step_sizes import STEP_SIZES
from tandem.planner.wave_changes import WaveChanges

AUTO, GPU_ONLY = POLICIES["auto"], POLICIES["gpu-only"]
STREAMS = ask(
    "qwen3-30b-a3b", "rtx4090", "server-genoa", prompt="100", generate="200", requests=1000
)


def sized(question: Question) -> Question:
    return replace(question, step_sizes=STEP_SIZES)


def changes_of(question: Question) -> tuple[WaveChanges, Search]:
    search = Search(question)
    return WaveChanges(question, search.footprint), search


def test_even_waves_take_the_next_steps_in_which_their_prompts_have_room() -> None:
    """Twenty requests of 256 tokens, 20 of which they generate, fill more than 256 a sweep."""
    question = sized(ask("gemma-2-9b", "rtx4090", prompt="256", generate="20", requests=20))
    changes, search = changes_of(question)
    start = Candidate("gpu-only", 0, 18, 0, step_tokens=256)
    assert search.footprint.fits(start)
    every = start._replace(device_rows=20)
    assert not search.footprint.fits(every)
    assert search.footprint.fits(every._replace(step_tokens=512))
    assert every._replace(step_tokens=512) in list(changes.with_even_waves(start))


@pytest.mark.parametrize("device", [0, 8])
def test_what_is_changed_has_room(device: int) -> None:
    question = sized(ask("opt-13b", "l4", prompt="64", generate="200", requests=200))
    changes, search = changes_of(question)
    start = Candidate("ride-along", 12, device, 50, mlps=True)
    assert search.footprint.fits(start)
    evened = [*changes.with_even_waves(start), *changes.with_other_waves(start)]
    assert evened
    assert {each.rows for each in evened} <= {40, 50, 67, 100}  # of 200, in five to two waves
    assert all(search.footprint.fits(each) for each in evened)


def test_smaller_steps_leave_room_for_layers() -> None:
    question = sized(ask("llama-2-13b", "rtx3090", prompt="500", generate="125", requests=20))
    changes, search = changes_of(question)
    fewest = {
        step: next(
            count
            for count in range(3, 41)
            if search.footprint.fits(Candidate("ride-along", count, 0, 20, step_tokens=step))
        )
        for step in (8192, 4096)
    }
    assert fewest[4096] < fewest[8192]
    start = Candidate("ride-along", fewest[8192], 0, 20, step_tokens=8192)
    halved = [each for each in changes.of(start) if each.step_tokens == 4096]
    assert [each.streamed for each in halved] == [max(fewest[4096], fewest[8192] - 2)]


def test_homes_that_promise_a_shorter_job_are_lent_where_no_prompt_is_read() -> None:
    """Out of step nearly all sweeps read prompts, in which nothing is."""
    changes, search = changes_of(sized(STREAMS))
    start = Candidate("ride-along", 34, 0, 1000, mlps=True, embedding=True, step_tokens=8192)
    assert search.tried(start, AUTO) is not None
    assert search.predictor.decode_share(start) < 0.05
    found = search.with_other_homes(start, changes.with_other_waves(start), AUTO)
    assert found
    assert {each.rows for each in found if each.how == "host"} >= {500, 1000}
    assert all(search.tried(each, AUTO) is not None for each in found[:5])
    assert start not in found


def test_homes_keep_to_the_policy() -> None:
    changes, search = changes_of(sized(STREAMS))
    start = Candidate("gpu-only", 40, 64, 0, mlps=True, embedding=True, step_tokens=4096)
    assert search.tried(start, GPU_ONLY) is not None
    found = search.with_other_homes(start, changes.with_other_waves(start), GPU_ONLY)
    assert found
    assert all(not each.on_cpu and not each.host_rows for each in found)


def test_other_waves_promise_their_whole_job() -> None:
    """A wave of half the requests takes less time, but there are two of them."""
    changes, search = changes_of(sized(STREAMS))
    start = Candidate("ride-along", 40, 0, 500, mlps=True, embedding=True, step_tokens=4096)
    waves = list(changes.with_other_waves(start))
    assert {each.rows for each in waves} >= {334}
    here = search.with_other_homes(start, (), AUTO)
    beside = search.with_other_homes(start, waves, AUTO)
    assert set(here) <= set(beside)
    assert [each for each in beside if each in set(here)] == here
    assert len(set(beside)) == len(beside)


@pytest.mark.parametrize(
    "start",
    [
        Candidate("gpu-only", 0, 20, 0),
        Candidate("rendezvous", 10, 8, 60),
        Candidate("ride-along", 20, 0, 8, device_share=0.5),
    ],
    ids=["resident", "cohorts", "split"],
)
def test_no_other_homes_are_proposed(start: Candidate) -> None:
    search = Search(ask("opt-13b", "l4", prompt="64", generate="200", requests=200))
    assert search.with_other_homes(start, (), AUTO) == []


def test_prompts_that_fill_steps_have_the_largest_searched() -> None:
    """Eight sweeps of each request beside a thousand tokens of its prompt: their room in a step
    bounds how many run, not memory.
    """
    question = ask("qwen3-30b-a3b", "rtx3090", prompt="1000", generate="8", requests=1000)
    usual, best = Search(question).best(AUTO), Search(sized(question)).best(AUTO)
    assert usual is not None
    assert best is not None
    assert best.candidate.step_tokens == max(STEP_SIZES)
    assert best.tokens_per_s > 1.5 * usual.tokens_per_s

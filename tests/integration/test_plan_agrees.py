"""Predictions of `tandem plan` held against `tandem simulate`: time to first token, time per output
token, tokens per second and the time of a job, of some of the cells of `tests.support.agreement`.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import pytest
from tests.support.agreement import CELLS, Compared, compare

_JOB, _ALONE = 0.06, 0.03
_UNEVEN, _SEVERAL, _NEAR = 0.25, 0.15, 1.5
_RATE, _TPOT, _TTFT = 0.05, 0.13, 0.08
"""Of requests out of step; time per token is predicted up to a tenth too long where prompts are
read in many small steps.
"""

JOBS = ["8b-t4-mixed", "gemma-a10g", "8b-a10g-int4"]
ONE_WAVE = ["8b-a10g-few", "a3b-t4-mixed"]
HALVES = "8b-a10g-sym"
ALONE = ["8b-a10g-alone", "70b-4090-alone"]
OVER_TIME = ["8b-a10g-rate3", "30b-a4000-rate3", "8b-t4-rate5", "code-3090-rate4"]
"""The last one's requests have a few tokens each, behind long prompts, and a fifth of the places
are ever taken. At twice its rate first tokens are 0.90 of the simulated ones (docs/simulate.md).
"""
UNEVEN, BESIDE_COHORTS, _SEEDS = "7b-t4-exp-gpu-rate6", "7b-t4-exp-asym-rate6", range(6)
_ANY, _SHORTER = "exp:500", "lognormal:450,450,2800"
"""The cell's own prompts, and such as its accelerator could hold, each of them."""
LIGHT = "7b-t4-rdv-rate3"
MORE = "7b-a10g-more"
IN_PARTS = "8b-a10g-parts-rate3"

BesideCohorts = Callable[[str, int], Compared]
"""By lengths of prompts, and seed."""


@pytest.mark.parametrize("name", JOBS)
def test_a_job_its_rate_and_the_time_per_token_are_as_predicted(name: str) -> None:
    found = compare(CELLS[name]).ratios()
    assert found["job_s"] == pytest.approx(1, abs=_JOB)
    assert found["tokens_per_s"] == pytest.approx(1, abs=_RATE)
    assert found["tpot_s"] == pytest.approx(1, abs=_JOB)


@pytest.mark.parametrize("name", ONE_WAVE)
def test_so_are_a_job_and_the_time_per_token_where_nobody_is_out_of_step(name: str) -> None:
    """Twelve short requests, the last of which would wait for others' ends without the reserve; and
    a job whose sweeps with prompts take far longer than those after them.
    """
    found = compare(CELLS[name]).ratios()
    assert found["job_s"] == pytest.approx(1, abs=_JOB)
    assert found["tpot_s"] == pytest.approx(1, abs=_JOB)


def test_halves_that_wait_for_their_tokens_while_prompts_are_read_see_what_is_predicted() -> None:
    found = compare(CELLS[HALVES]).ratios()
    assert found["job_s"] == pytest.approx(1, abs=_JOB)
    assert found["tpot_s"] == pytest.approx(1, abs=_JOB)


@pytest.mark.parametrize("name", ALONE)
def test_one_request_at_a_time_sees_what_is_predicted(name: str) -> None:
    found = compare(CELLS[name]).ratios()
    assert found["tpot_s"] == pytest.approx(1, abs=_ALONE)
    assert found["ttft_s"] == pytest.approx(1, abs=_ALONE)


@pytest.mark.parametrize("name", OVER_TIME)
def test_requests_over_time_see_what_is_predicted(name: str) -> None:
    found = compare(CELLS[name]).ratios()
    assert found["tpot_s"] == pytest.approx(1, abs=_RATE)
    assert found["ttft_s"] == pytest.approx(1, abs=_TTFT)


def test_jobs_end_as_predicted_whose_requests_come_faster_than_they_are_served() -> None:
    """By a steady state it was 0.87 of what is simulated."""
    assert compare(CELLS[MORE]).ratios()["job_s"] == pytest.approx(1, abs=_RATE)


def test_first_tokens_wait_for_long_prompts_to_have_room_and_to_leave() -> None:
    """Of an accelerator that holds a few requests: 0.45 of what is simulated if only steps had to
    have room.
    """
    found = compare(CELLS[UNEVEN]).ratios()
    assert found["tpot_s"] == pytest.approx(1, abs=_UNEVEN)
    assert found["ttft_s"] == pytest.approx(1, abs=_UNEVEN)
    assert found["ttft_p90_s"] == pytest.approx(1, abs=_UNEVEN)


def in_sum(found: Iterable[Compared], name: str) -> float:
    """Predicted over simulated."""
    both = [(getattr(each.predicted, name), getattr(each.simulated, name)) for each in found]
    return sum(predicted for predicted, _ in both) / sum(simulated for _, simulated in both)


@pytest.fixture(scope="module")
def beside_cohorts() -> BesideCohorts:
    """Each is looked at when first asked for."""

    @cache
    def found(prompt: str, seed: int) -> Compared:
        return compare(replace(CELLS[BESIDE_COHORTS], seed=seed, prompt=prompt))

    return found


@pytest.mark.parametrize("prompt", [_ANY, _SHORTER])
@pytest.mark.parametrize("seed", _SEEDS)
def test_beside_cohorts_each_seed_s_time_per_token_is_as_predicted(
    beside_cohorts: BesideCohorts, seed: int, prompt: str
) -> None:
    found = beside_cohorts(prompt, seed).ratios()
    assert found["tpot_s"] == pytest.approx(1, abs=_TPOT)


def test_so_are_those_of_several_seeds_that_the_accelerator_could_hold(
    beside_cohorts: BesideCohorts,
) -> None:
    found = [beside_cohorts(_SHORTER, seed) for seed in _SEEDS]
    assert in_sum(found, "tpot_s") == pytest.approx(1, abs=_RATE)
    assert in_sum(found, "ttft_s") == pytest.approx(1, abs=_SEVERAL)
    assert in_sum(found, "ttft_p90_s") == pytest.approx(1, abs=_SEVERAL)


def test_first_tokens_of_several_seeds_are_near_where_it_could_not_hold_some(
    beside_cohorts: BesideCohorts,
) -> None:
    """A long prompt there waits for 20 s or not, by who lies beside it at that moment, and so do
    all behind it: one seed's first tokens are 0.28 to 4.4 times the simulated ones, which nothing
    here holds; those of several are nearer.
    """
    found = [beside_cohorts(_ANY, seed) for seed in _SEEDS]
    for name in ("ttft_s", "ttft_p90_s"):
        assert 1 / _NEAR < in_sum(found, name) < _NEAR


def test_as_few_are_said_to_run_beside_cohorts_under_light_loads() -> None:
    """Not those of a host that is full: 20 at once once were predicted for 6."""
    found = compare(CELLS[LIGHT])
    assert found.predicted.running is not None
    assert found.simulated.running is not None
    assert found.predicted.running == pytest.approx(found.simulated.running, abs=1)
    assert found.ratios()["ttft_s"] == pytest.approx(1, abs=_TTFT)


def test_prompts_that_are_read_in_many_parts_see_what_is_predicted() -> None:
    found = compare(CELLS[IN_PARTS]).ratios()
    assert found["tpot_s"] == pytest.approx(1, abs=_TPOT)
    assert found["ttft_s"] == pytest.approx(1, abs=_TTFT)

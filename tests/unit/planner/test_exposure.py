"""A plan as it is where rates turn out otherwise."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.planner.answer import answer
from tandem.planner.exposure import exposure
from tandem.planner.in_step import InStep
from tandem.planner.offline.answer import offline_answer
from tandem.planner.option import Option
from tandem.planner.question import Question
from tandem.planner.robustness import WITHIN
from tandem.planner.search.search import Search
from tandem.planner.wrong_rates import ERROR, numbers, with_errors
from tandem.spec.units import GIB

SMALL = short(plannable_spec("llama-3.1-8b"), 8)
RESIDENT = ask(SMALL, requests=64)
STREAMED = ask(SMALL, device_bytes=int(2.85 * GIB), requests=64)  # all MLPs are streamed


def test_several_groups_move_together() -> None:
    moved = with_errors(STREAMED, {"link": 0.15, "host rates": -0.15}).hardware
    before = STREAMED.hardware
    assert moved.accelerator == before.accelerator
    assert moved.link.h2d_bytes_per_s == pytest.approx(1.15 * before.link.h2d_bytes_per_s)
    rate = before.host.memory_bandwidth_bytes_per_s
    assert moved.host.memory_bandwidth_bytes_per_s == pytest.approx(0.85 * rate)


def test_the_plan_itself_is_predicted_on_each_machine() -> None:
    given = answer(STREAMED)
    found = given.exposure
    assert found is not None
    assert len(found.cases) == 2 * len(numbers(STREAMED)) == 6
    for case in (*found.cases, found.worst):
        search, candidate = Search(with_errors(STREAMED, case.errors)), given.chosen.candidate
        alone = InStep(search).closely(Option(candidate, search.predictor.predict(candidate)))
        assert case.tokens_per_s == pytest.approx(alone.tokens_per_s)
        assert case.in_time
    assert found.decisive.errors == {"link": -ERROR}
    assert set(found.worst.errors) == set(numbers(STREAMED))
    assert found.worst.errors["link"] == -ERROR
    slower = with_errors(STREAMED, dict.fromkeys(numbers(STREAMED), -ERROR))
    search, candidate = Search(slower), given.chosen.candidate
    alone = InStep(search).closely(Option(candidate, search.predictor.predict(candidate)))
    assert found.worst.tokens_per_s <= alone.tokens_per_s * (1 + 1e-9)
    assert found.planned_tokens_per_s == given.job_tokens_per_s  # the figure that is printed
    assert found.loss(found.worst) == pytest.approx(0.15, abs=0.02)
    assert found.loss(found.decisive) < found.loss(found.worst)


def test_all_move_in_the_direction_that_costs_most() -> None:
    """Of a plan that is slower where its link is faster."""
    asked: list[Question] = []

    def speed(question: Question) -> tuple[float, bool]:
        asked.append(question)
        return 1e12 / question.hardware.link.h2d_bytes_per_s, True

    found = exposure(RESIDENT, 100.0, speed)
    assert found.worst.errors["link"] == ERROR
    assert found.worst.tokens_per_s == min(case.tokens_per_s for case in found.cases)
    assert len(asked) == 8


def test_a_plan_that_would_break_its_bound_says_with_what() -> None:
    bound_s = answer(RESIDENT).chosen.prediction.rates.worst_tpot_s
    found = answer(replace(RESIDENT, tpot_bound_s=bound_s * 1.01)).exposure
    assert found is not None
    assert found.late == (found.decisive, found.worst)
    assert found.decisive.errors == {"GPU rates": -ERROR}


def test_batch_jobs_have_theirs() -> None:
    given = offline_answer(RESIDENT)
    found = given.exposure
    assert found is not None
    assert found.planned_tokens_per_s == given.chosen.tokens_per_s
    assert found.loss(found.worst) == pytest.approx(ERROR, abs=WITHIN)

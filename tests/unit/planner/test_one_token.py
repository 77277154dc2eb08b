"""Requests that generate a single token end with their prompts: nobody decodes."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask

from tandem.planner.answer import answer
from tandem.planner.candidate import candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.in_step import live_through
from tandem.planner.option import Option
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.simulator.build import Planned
from tandem.simulator.simulate import simulate
from tandem.spec.errors import ConfigError
from tandem.spec.workload import drawn_workload, parse_lengths


def asked(requests: int = 300) -> Question:
    """Prompts of 1000 tokens, on a card that holds the KV of seven beside the weights."""
    question = ask("llama-3.1-8b", "a10g", prompt="1000", generate="1", requests=requests)
    return replace(question, device_bytes=17 * 2**30, step_sizes=(256, 512, 4096, 8192))


def short_ones(gib: int) -> Question:
    """Prompts of 16 tokens, on a card that may give so much memory, which the weights exceed."""
    question = ask("opt-6.7b", "t4", prompt="16", generate="1", requests=1000)
    return replace(question, device_bytes=gib * 2**30)


def test_no_request_is_in_a_cohort_and_the_job_takes_as_long_as_predicted() -> None:
    question = asked()
    found = answer(question, compare=True)
    assert not found.chosen.candidate.has_cohorts
    options = [result.option for result in found.policies]
    assert not any(option.candidate.has_cohorts for option in options if option is not None)
    workload = drawn_workload(parse_lengths("1000", "prompt"), parse_lengths("1", "generate"), 300)
    seen = simulate(Planned(question, found.chosen, found.plan), workload)
    assert found.job_s == pytest.approx(seen.duration_s, rel=0.02)


def test_a_policy_of_cohorts_alone_says_why_it_serves_none_of_them() -> None:
    with pytest.raises(ConfigError, match="of no use to those that generate a single token"):
        answer(asked(), "symmetric")
    with pytest.raises(ConfigError, match="of no use to those that are alone"):
        answer(ask(objective="latency"), "symmetric")


@pytest.mark.parametrize("places", [2, 3, 5])
def test_long_jobs_of_few_places_go_on_at_the_pace_at_which_prompts_are_read(places: int) -> None:
    """Requests on either side end in turns, of which half of few ones holds one more or less."""
    candidate = candidate_of(
        "ride-along", Elsewhere(), places - 1, 1, step_tokens=4096, prompts_here=2
    )

    search = Search(asked(4000))
    predictor = search.predictor
    # of a card that computes all the time
    # none of them is read on the host
    two_s = predictor.sweep_s(candidate, 4000) - predictor.sweep_s(candidate, 2000)
    each_s = two_s / 2
    job = live_through(search, Option(candidate, predictor.predict(candidate)))
    assert job.job_s / (4000 * each_s) == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    ("question", "strategy"),
    [
        (ask("opt-1.3b", "a10g", prompt="1000", generate="1", requests=120), "gpu-only"),
        (ask("opt-6.7b", "t4", prompt="1000", generate="1", requests=60), "gpu-only"),
        # weights come over the link for as many prompts as a sweep reads
        (short_ones(8), "gpu-only"),
        (short_ones(3), "ride-along"),
    ],
    ids=["resident", "nearly resident", "streamed", "KV in both tiers"],
)
def test_sweeps_read_prompts_beside_nobody_who_decodes(question: Question, strategy: str) -> None:
    """KV on the host, and layers on the CPU, gain nothing from rows that are not there."""
    found = answer(replace(question, step_sizes=(1024, 4096, 8192)))
    assert found.chosen.candidate.strategy == strategy
    assert not found.chosen.candidate.on_cpu
    served = drawn_workload(
        parse_lengths(f"{question.lengths.prompt_tokens:.0f}", "prompt"),
        parse_lengths("1", "generate"),
        question.lengths.requests,
    )
    seen = simulate(Planned(found.question, found.chosen, found.plan), served)
    assert found.job_s == pytest.approx(seen.duration_s, rel=0.02)

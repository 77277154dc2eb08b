"""Prompts of requests on the host, read on the accelerator: as planned, counted and handed on."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.planner.answer import online_plan
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.option import Option
from tandem.planner.passing import LEAST_PROMPTS_HERE, enough_prompts_here
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.search import Search
from tandem.planner.waves import Home, Wave
from tandem.spec.units import GIB
from tandem.spec.workload import RequestShape

LAYERS = 8
SCARCE: Question = replace(
    ask(short(plannable_spec("llama-2-7b"), LAYERS), "t4", prompt="512", generate="64"),
    device_bytes=4 * GIB,
    max_num_batched_tokens=512,
)
"""On whose accelerator few requests have room."""


def hosted(strategy: str, device: int = 2, *, here: int = 2) -> Candidate:
    assert strategy in ("ride-along", "rendezvous", "symmetric")
    passes = LAYERS if strategy == "symmetric" else 0
    return candidate_of(strategy, Elsewhere(), device, 20, passes, prompts_here=here)


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_no_prompt_is_attended_on_the_host_and_two_have_room_beside_the_requests(
    strategy: str,
) -> None:
    search = Search(SCARCE)
    here, there = hosted(strategy), hosted(strategy, here=0)
    predictor, footprint = search.predictor, search.footprint
    assert predictor.rates(here).tokens_per_s > 1.03 * predictor.rates(there).tokens_per_s
    kept = footprint.uses(here)[0].kv_bytes - footprint.uses(there)[0].kv_bytes
    assert kept == 2 * footprint.held.prompt * footprint.block_bytes
    assert footprint.uses(here)[1] == footprint.uses(there)[1]


def test_where_all_are_on_the_host_prompts_take_room_on_the_accelerator_all_the_same() -> None:
    search = Search(SCARCE)
    used = search.footprint.uses(hosted("symmetric", 0))[0]
    assert used.kv_bytes == 2 * search.footprint.held.prompt * search.footprint.block_bytes


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_no_more_prompts_are_read_than_the_link_takes_away(strategy: str) -> None:
    link = SCARCE.hardware.link
    slow = replace(link, d2h_bytes_per_s=link.d2h_bytes_per_s / 300)
    question = replace(SCARCE, hardware=replace(SCARCE.hardware, link=slow))
    search, candidate = Search(question), hosted(strategy)
    leaving = 1 - candidate.device_rows / candidate.served(LAYERS)
    size = search.footprint.held.prompt * search.footprint.block_bytes
    most = question.lengths.generated_tokens * slow.d2h_bytes_per_s / (leaving * size)
    found = search.predictor.rates(candidate).tokens_per_s
    assert found <= most
    assert found > 0.5 * most


def test_an_engine_is_told_and_the_plan_says_so() -> None:
    search, candidate = Search(SCARCE), hosted("rendezvous")
    option = Option(candidate, search.predictor.predict(candidate))
    plan = online_plan(search, option)
    assert plan.prompts_on_device
    assert not online_plan(
        search, replace(option, candidate=hosted("rendezvous", here=0))
    ).prompts_on_device
    assert OnlinePlan.from_json(plan.to_json()) == plan
    assert candidate.describe(LAYERS).endswith("in cohorts, prompts on the accelerator")


def test_the_planner_chooses_it_and_no_plan_exceeds_the_ceiling() -> None:
    search, policy = Search(SCARCE), POLICIES["rendezvous"]
    best = search.best(policy)
    assert best is not None
    assert best.candidate.reads_here
    most = Ceilings(SCARCE, search.footprint, policy).ceiling().tokens_per_s
    assert best.tokens_per_s <= most * (1 + 1e-6)


@pytest.mark.parametrize("prompts", [1, 2, 4, 8])
@pytest.mark.parametrize("prompt_tokens", [500, 700])
def test_no_more_end_than_places_are_left_for_their_prompts(
    prompts: int, prompt_tokens: int
) -> None:
    """A prompt has its place while it is read, in as many sweeps as it needs, and for two more."""
    lengths = replace(SCARCE.lengths, prompt_tokens=float(prompt_tokens), generated_tokens=4.0)
    question = replace(SCARCE, lengths=lengths, max_num_batched_tokens=600)
    pace = Search(question).predictor.pace
    found = pace.of(candidate_of("ride-along", Elsewhere(), 0, 60, prompts_here=prompts))
    sweeps = 3 if prompt_tokens == 500 else 4
    assert found.finished <= prompts / sweeps
    if prompts == 1:
        assert found.finished == pytest.approx(1 / sweeps, rel=0.02)
    read = pace.of(candidate_of("ride-along", Elsewhere(), 0, 60)).finished
    assert found.finished <= read
    if prompts == 8:
        assert found.finished > 0.9 * read


def test_there_are_as_many_places_as_prompts_need_and_no_more_than_a_step_fills() -> None:
    few = enough_prompts_here(SCARCE, hosted("rendezvous"))
    assert few == LEAST_PROMPTS_HERE
    streaming = replace(SCARCE, max_num_batched_tokens=8192)
    many = candidate_of("ride-along", Elsewhere(), 0, 800, prompts_here=LEAST_PROMPTS_HERE)
    enough = enough_prompts_here(streaming, many)
    pace = Search(streaming).predictor.pace
    waiting, flowing = (pace.of(many._replace(prompts_here=n)) for n in (enough // 2, enough))
    assert flowing.finished > 1.2 * waiting.finished
    most = 3 * (8192 - 800) / 512
    longer = replace(streaming, lengths=replace(streaming.lengths, generated_tokens=2.0))
    assert most <= enough_prompts_here(longer, many) < most + 1


def test_requests_whose_prompts_leave_decode_later_in_a_wave() -> None:
    """As many as there are places begin every third sweep, and decode two sweeps later."""
    elsewhere = Home(0, 0, True)

    def sweep_s(device: float, host: float, prompts: float) -> float:
        return 1.0

    def job_s(here: int) -> float:
        home = Home(1000, 64, False, 1.0, 3 / here, 2.0)
        wave = Wave((elsewhere, home), 64, 16, 512)
        return wave.job_s((RequestShape(64, 33),) * 48, sweep_s)

    assert job_s(2) == pytest.approx(48 * 3 / 2 + 2 + 32, abs=2)
    assert job_s(8) == pytest.approx(48 * 3 / 8 + 2 + 32, abs=2)


@pytest.mark.parametrize("prompt", [1, 64])
def test_prompts_of_no_more_than_a_block_are_read_where_they_stay(prompt: int) -> None:
    question = replace(SCARCE, lengths=replace(SCARCE.lengths, prompt_tokens=float(prompt)))
    search = Search(question)
    found = list(Candidates(question, search.footprint).of(POLICIES["auto"]))
    assert any(candidate.host_rows for candidate in found)
    assert not any(candidate.reads_here for candidate in found)

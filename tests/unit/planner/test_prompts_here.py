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
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.ceiling import Ceilings
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.search import Search
from tandem.spec.units import GIB

LAYERS = 8
SCARCE: Question = replace(
    ask(short(plannable_spec("llama-2-7b"), LAYERS), "t4", prompt="512", generate="64"),
    device_bytes=4 * GIB,
    max_num_batched_tokens=512,
)
"""On whose accelerator few requests have room."""


def hosted(strategy: str, device: int = 2, *, here: bool = True) -> Candidate:
    assert strategy in ("ride-along", "rendezvous", "symmetric")
    passes = LAYERS if strategy == "symmetric" else 0
    return candidate_of(strategy, Elsewhere(), device, 20, passes, reads_here=here)


@pytest.mark.parametrize("strategy", ["ride-along", "rendezvous"])
def test_no_prompt_is_attended_on_the_host_and_two_have_room_beside_the_requests(
    strategy: str,
) -> None:
    search = Search(SCARCE)
    here, there = hosted(strategy), hosted(strategy, here=False)
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
        search, replace(option, candidate=hosted("rendezvous", here=False))
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


@pytest.mark.parametrize("prompt", [1, 64])
def test_prompts_of_no_more_than_a_block_are_read_where_they_stay(prompt: int) -> None:
    question = replace(SCARCE, lengths=replace(SCARCE.lengths, prompt_tokens=float(prompt)))
    search = Search(question)
    found = list(Candidates(question, search.footprint).of(POLICIES["auto"]))
    assert any(candidate.host_rows for candidate in found)
    assert not any(candidate.reads_here for candidate in found)

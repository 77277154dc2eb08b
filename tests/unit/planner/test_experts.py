"""Plans of mixtures that are on the accelerator in part."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import ask, short

from tandem.cost.expert_use import ExpertUse
from tandem.cost.placed_sweep import mixture_times, predicted_sweep_s
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.sweep_time import layer_times
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile
from tandem.plan.weights import resident_experts
from tandem.planner.answer import Answer, answer
from tandem.planner.candidate import Candidate
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.plan_file import plan_file
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.planner.sweep_load import decode_load
from tandem.planner.sweeps import Sweeps
from tandem.spec.config import EngineConfig

AUTO = POLICIES["auto"]
SMALL = short(plannable_spec("qwen3-30b-a3b"), 8)
EVERY = Elsewhere(8, mlps=True, experts=40)


def tight(gigabytes: float, requests: int) -> Question:
    """Eight layers of a 30B mixture (11.3 GB) on an accelerator that has less memory."""
    size = int(gigabytes * 1e9)
    return ask(SMALL, "rtx4090", "server-genoa", requests=requests, device_bytes=size)


@pytest.mark.parametrize("rows", [1, 8, 64])
@pytest.mark.parametrize(
    ("elsewhere", "link_bound"),
    [
        (EVERY, True),
        (EVERY.lending(3), True),
        (EVERY.lending(6), False),
        (Elsewhere(0, 8, "cpu-mlp", experts=100), False),
    ],
    ids=["streamed", "some lent", "lent", "always the CPU's"],
)
def test_a_sweep_takes_what_an_engine_without_a_plan_predicts(
    elsewhere: Elsewhere, link_bound: bool, rows: int
) -> None:
    question = ask(SMALL, "a10g", "server-genoa", prompt="16", generate="8")
    search = Search(question)
    sweeps = Sweeps(question, search.footprint, search.schedules)
    candidate = Candidate("gpu-only", 0, rows, 0).with_elsewhere(elsewhere)
    load = decode_load(candidate, question.lengths)
    precision, hardware = question.precision, question.hardware
    sizes, use = MixtureBytes.of(SMALL, precision), ExpertUse.uniform(SMALL)
    times = layer_times(SMALL, precision, rows, hardware)

    def predicted_s(elsewhere: Elsewhere) -> float:
        placed = elsewhere.placement(8)
        split = mixture_times(placed, SMALL, precision, rows, hardware, use, sizes)
        return predicted_sweep_s(placed, elsewhere.rules(8, rows), rows, times, split)

    # embeddings, attention and head, which streaming hides
    others_s = sweeps.time(Elsewhere(), load).period_s - predicted_s(Elsewhere())
    expected_s = predicted_s(elsewhere) + (0.0 if link_bound else others_s)
    assert sweeps.time(elsewhere, load).period_s == pytest.approx(expected_s, rel=0.1)


@pytest.mark.parametrize(("gigabytes", "requests"), [(6.0, 1), (4.0, 40), (8.0, 300)])
def test_nothing_on_a_grid_with_mixtures_in_part_is_better(gigabytes: float, requests: int) -> None:
    search = Search(tight(gigabytes, requests))
    best = search.best(AUTO)
    assert best is not None
    apart = [Elsewhere(8, mlps=True), Elsewhere(0, 8, "cpu-mlp")]
    apart += [each._replace(experts=kept) for each in apart for kept in range(8, 128, 12)]
    apart += [each.lending(lent) for each in apart for lent in (2, 4, 6) if each.mlps]
    tried = 0
    for elsewhere in apart:
        most = requests
        while most:
            candidate = Candidate("gpu-only", 0, most, 0).with_elsewhere(elsewhere)
            if search.footprint.fits(candidate):
                found = search.predictor.predict(candidate).rates.job_tokens_per_s
                assert found <= best.tokens_per_s * 1.01, candidate
                tried += 1
            most //= 2
    assert tried > 10


def test_a_part_of_every_mixture_stays_where_that_is_faster_than_some_whole() -> None:
    question = tight(8.0, 8)
    found = answer(question)
    chosen = found.chosen
    assert chosen.candidate.experts > 0
    assert found.device.free_bytes >= 0
    assert found.ceiling is not None
    assert found.ceiling.tokens_per_s >= chosen.tokens_per_s
    whole = replace(AUTO, single_experts=False, name="whole mixtures")
    others = Search(question).best(whole)
    assert others is not None
    assert chosen.tokens_per_s > 1.02 * others.tokens_per_s
    experts = resident_experts(found.plan.weights)
    assert set(experts) == set(range(8))
    assert {len(ids) for ids in experts.values()} == {chosen.candidate.experts}
    executes(found)


def executes(found: Answer) -> None:
    """With the bytes that were planned."""
    question = found.question
    planned = PlanFile.from_json(plan_file("any", question, found.plan).to_json())
    assert planned.online == OnlinePlan.from_json(found.plan.to_json()) == found.plan
    config = EngineConfig(model="any", **planned.settings)
    capacities = Capacities(question.device_bytes, question.host_bytes)
    memory = plan_memory(
        config, question.model, question.precision, capacities, planned=planned.online
    )
    assert replace(memory.plan, notes=()) == found.plan
    weights = {e.location: e.predicted_bytes for e in memory.ledger.entries if e.label == "weights"}
    assert weights["device"] == found.device.weights_bytes
    assert weights["host"] == found.host.weights_bytes


def test_a_model_without_experts_has_none_in_part() -> None:
    search = Search(ask("llama-3.1-8b", "t4", "server-genoa"))
    best = search.best(AUTO)
    assert best is not None
    tried = (best, *search.alternatives(AUTO, best))
    assert not any(option.candidate.experts for option in tried)

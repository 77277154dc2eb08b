import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from tests.unit.planner.questions import alone, ask, with_dense

from tandem.engine.building.scheduler_options import scheduler_config
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.models.catalogue import plannable_spec
from tandem.plan.plan_file import PlanFile
from tandem.plan.weights import homes_by_layer
from tandem.planner.answer import answer, online_plan
from tandem.planner.candidate import Candidate
from tandem.planner.option import Option
from tandem.planner.plan_file import plan_file
from tandem.planner.question import Question
from tandem.planner.search.search import Search
from tandem.spec.config import EngineConfig
from tandem.spec.quantized_maps import uniform_formats


@pytest.mark.parametrize(
    ("model", "candidate"),
    [
        ("llama-3.1-8b", Candidate("gpu-only", 0, 30, 0)),
        ("llama-3.1-8b", Candidate("gpu-only", 8, 40, 0)),
        ("llama-3.1-8b", Candidate("ride-along", 0, 30, 20)),
        ("llama-3.1-8b", Candidate("ride-along", 32, 50, 60)),
        ("llama-3.1-8b", Candidate("rendezvous", 4, 20, 100)),
        ("qwen3-30b-a3b", Candidate("gpu-only", 40, 30, 0)),
        ("llama-3.1-8b", Candidate("gpu-only", 0, 40, 0, on_cpu=7, how="cpu")),
        ("llama-3.1-8b", Candidate("ride-along", 0, 20, 30, on_cpu=32, how="cpu")),
        ("llama-3.1-8b", Candidate("ride-along", 0, 20, 30, on_cpu=11, how="cpu-mlp")),
        ("llama-3.1-8b", Candidate("gpu-only", 12, 30, 0, on_cpu=6, how="host")),
        ("llama-3.1-8b", Candidate("ride-along", 4, 20, 30, on_cpu=3, how="cpu")),
        ("qwen3-30b-a3b", Candidate("gpu-only", 0, 30, 0, on_cpu=40, how="cpu-mlp")),
        ("llama-3.1-8b", Candidate("gpu-only", 24, 30, 0, mlps=True)),
        ("llama-3.1-8b", Candidate("rendezvous", 16, 10, 100, mlps=True)),
        ("llama-3.1-8b", Candidate("ride-along", 20, 20, 30, on_cpu=8, how="host", mlps=True)),
        ("qwen3-30b-a3b", Candidate("gpu-only", 44, 30, 0, on_cpu=42, how="host", mlps=True)),
        ("qwen3-30b-a3b", Candidate("gpu-only", 48, 30, 0, mlps=True, experts=33)),
        (
            "qwen3-30b-a3b",
            Candidate("gpu-only", 48, 30, 0, on_cpu=40, how="host", mlps=True, experts=1),
        ),
        ("qwen3-30b-a3b", Candidate("gpu-only", 0, 9, 0, on_cpu=48, how="cpu-mlp", experts=40)),
        ("llama-3.1-8b", Candidate("gpu-only", 0, 20, 0, on_cpu=20, how="cpu", on_disk=9)),
        ("llama-3.1-8b", Candidate("ride-along", 0, 9, 9, on_cpu=9, how="cpu", on_disk=9)),
        ("llama-3.1-8b", Candidate("gpu-only", 24, 30, 0, on_disk=9)),
        ("llama-3.1-8b", Candidate("ride-along", 32, 20, 30, on_disk=32)),
        ("llama-3.1-8b", Candidate("ride-along", 20, 20, 30, on_cpu=8, how="host", on_disk=7)),
        ("llama-3.1-8b", Candidate("gpu-only", 4, 20, 0, on_cpu=9, how="cpu", on_disk=4)),
        ("llama-3.1-8b", Candidate("gpu-only", 6, 20, 0, on_cpu=9, how="cpu-mlp", on_disk=6)),
    ],
)
def test_the_engine_finds_the_same_room_for_a_plan(
    model: str, candidate: Candidate, tmp_path: Path
) -> None:
    agree(ask(model, host="g5.16xlarge", requests=1000), candidate, tmp_path)


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("gpu-only", 36, 20, 0, on_disk=11),
        Candidate("ride-along", 44, 10, 20, on_cpu=20, how="host"),
        Candidate("ride-along", 0, 10, 20, on_cpu=45, how="cpu-mlp"),
        Candidate("gpu-only", 0, 20, 0, on_cpu=40, how="cpu"),
        Candidate("gpu-only", 40, 20, 0, on_cpu=38, how="host", mlps=True),
        Candidate("ride-along", 44, 10, 20, embedding=True),
        Candidate("gpu-only", 45, 20, 0, on_cpu=43, how="host", mlps=True, experts=20),
    ],
    ids=["disk", "lent", "MLPs", "cpu", "streamed-MLPs", "embeddings", "experts"],
)
def test_layers_without_experts_beside_others_are_resident(
    candidate: Candidate, tmp_path: Path
) -> None:
    model = with_dense(plannable_spec("qwen3-30b-a3b"), 0, 7, 47)
    question = ask(model, host="g5.16xlarge", requests=1000)
    agree(question, candidate, tmp_path)
    homes = homes_by_layer(candidate.placement(model))
    assert {homes[layer] for layer in (0, 7, 47)} == {"resident"}


@pytest.mark.parametrize("on_disk", [0, 3, 20, 32])
def test_the_engine_finds_the_same_room_on_the_host_alone(on_disk: int, tmp_path: Path) -> None:
    question = alone(host_bytes=40 << 30, requests=1000)
    agree(question, Candidate("gpu-only", 0, 30, 0, on_disk=on_disk), tmp_path)


def agree(question: Question, candidate: Candidate, tmp_path: Path) -> None:
    search = Search(question)
    assert search.footprint.fits(candidate)
    plan = online_plan(search, Option(candidate, search.predictor.predict(candidate)))
    placement = tmp_path / "placement.json"
    layers = [asdict(run) for run in plan.weights]
    for run in layers:  # a file names what is meant; where layers go from the disk follows
        run["home"] = run["home"].replace("disk_streamed", "disk")
    placement.write_text(json.dumps({"layers": layers, "embedding": plan.embedding}), "utf-8")
    config = EngineConfig(
        model="any",
        strategy=plan.strategy,
        placement=str(placement),
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        max_model_len=plan.max_model_len,
    )
    capacities = Capacities(question.device_bytes, question.host_bytes)
    if question.host_only:
        capacities = replace(capacities, device_location="host", real=False)
    engine = plan_memory(config, question.model, question.precision, capacities).plan
    assert engine.weights == plan.weights
    # the engine's pools end at what its requests can use; cohorts are sized alike or larger there
    assert plan.device_blocks == pytest.approx(engine.device_blocks, rel=0.01)
    if candidate.strategy != "gpu-only":
        assert plan.host_blocks == pytest.approx(engine.host_blocks, abs=1)


@pytest.mark.parametrize(("model", "card"), [("llama-3.1-8b", "a10g"), ("opt-30b", "rtx4090")])
@pytest.mark.parametrize("policy", ["gpu-only", "simple", "rendezvous"])
def test_the_engine_executes_the_very_plan(model: str, card: str, policy: str) -> None:
    question = ask(model, card, "g5.16xlarge", requests=50)
    found = answer(question, policy)
    planned = PlanFile.from_json(plan_file("any", question, found.plan).to_json())
    plan = planned.online
    config = EngineConfig(model="any", **planned.settings)
    capacities = Capacities(question.device_bytes, question.host_bytes)
    memory = plan_memory(
        config, question.model, question.precision, capacities, planned=planned.online
    )
    assert replace(memory.plan, notes=()) == planned.online
    limits = scheduler_config(memory.plan, config, question.model)
    assert (limits.kv_placement, limits.max_host_seqs) == (plan.kv_placement, plan.max_host_seqs)
    for place in ("device", "host"):
        assert memory.ledger.budget(place).left_bytes >= 0


@pytest.mark.parametrize("hosted", [0, 200])
def test_the_engine_has_the_workspace_that_was_planned(hosted: int) -> None:
    question = ask("llama-3.1-8b", "a10g", "g5.16xlarge", requests=1000)
    search = Search(question)
    strategy = "rendezvous-ahead" if hosted else "gpu-only"
    candidate = Candidate(strategy, 0, 20, hosted)
    assert search.footprint.fits(candidate)
    plan = online_plan(search, Option(candidate, search.predictor.predict(candidate)))
    planned = PlanFile.from_json(plan_file("any", question, plan).to_json())
    memory = plan_memory(
        EngineConfig(model="any", **planned.settings),
        question.model,
        question.precision,
        Capacities(question.device_bytes, question.host_bytes),
        planned=planned.online,
    )
    used = memory.ledger.budget("device").used_bytes
    around = used["workspace"] + used["kernel scratch"] + used["slot table"]
    assert search.footprint.workspace_of(candidate) == around


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("gpu-only", 0, 30, 0),
        Candidate("ride-along", 20, 30, 30, on_cpu=10, how="host"),
        Candidate("gpu-only", 0, 30, 0, on_cpu=9, how="cpu-mlp"),
    ],
    ids=["resident", "lent", "MLPs"],
)
def test_weights_in_few_bits_take_what_the_engine_says(
    bits: int, candidate: Candidate, tmp_path: Path
) -> None:
    question = ask("llama-3.1-8b", host="g5.16xlarge", requests=1000)
    formats = uniform_formats(question.model, bits, 64)
    quantized = replace(question, precision=replace(question.precision, quantized=formats))
    agree(quantized, candidate, tmp_path)


def test_uses_add_up_to_the_capacity() -> None:
    search = Search(ask())
    candidate = Candidate("ride-along", 6, 10, 20)
    for use in search.footprint.uses(candidate):
        parts = use.weights_bytes + use.workspace_bytes + use.kv_bytes + use.free_bytes
        assert parts == use.capacity_bytes
        assert use.free_bytes >= 0


def test_a_request_longer_than_both_tiers_does_not_fit() -> None:
    footprint = Search(ask(prompt="100000", generate="100")).footprint
    assert not footprint.fits(Candidate("gpu-only", 0, 0, 0))
    assert footprint.fits(Candidate("ride-along", 0, 0, 1))

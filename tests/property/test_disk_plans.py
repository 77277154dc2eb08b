"""Layers on disk in plans: placements go round, and planner and engine agree on what fits."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.property.test_refusals import specs
from tests.support.examples import scaled
from tests.unit.planner.questions import alone, ask, with_disk

from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import Home, homes_by_layer
from tandem.planner.answer import online_plan
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.search import Option, Search
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import weight_bytes

MAX_TOKENS = 64


@st.composite
def beside(draw: st.DrawFn) -> tuple[int, Elsewhere]:
    """Layers of a model, and some of them elsewhere beside an accelerator."""
    layers = draw(st.integers(2, 24))
    streamed = draw(st.integers(1, layers))
    on_disk = draw(st.integers(0, streamed))
    how = draw(st.sampled_from(["none", "host", "host-mlp", "cpu", "cpu-mlp", "disk-cpu"]))
    if how == "disk-cpu":
        return layers, Elsewhere(0, streamed, "cpu", on_disk)
    if how in ("host", "host-mlp"):
        mlps = how == "host-mlp"
        plain = Elsewhere(streamed, on_disk=0 if mlps else on_disk, mlps=mlps)
        return layers, plain.lending(draw(st.integers(0, streamed)))
    plain = Elsewhere(streamed, on_disk=on_disk)
    if how == "none":
        return layers, plain
    return layers, plain._replace(on_cpu=draw(st.integers(0, layers - streamed)), how=how)


@given(beside())
def test_every_layer_has_the_home_that_is_said_and_rules_are_legal(
    given_: tuple[int, Elsewhere],
) -> None:
    layers, elsewhere = given_
    placement = elsewhere.placement(layers)
    homes = Counter(homes_by_layer(placement).values())
    read = elsewhere.on_disk - elsewhere.read_on_cpu
    assert (homes["disk_streamed"], homes["disk-cpu"]) == (read, elsewhere.read_on_cpu)
    assert homes["cpu"] == elsewhere.whole_on_cpu - elsewhere.read_on_cpu
    comes: Home = "host" if elsewhere.lent else "streamed"
    comes = "host-mlp" if elsewhere.mlps else comes
    assert homes[comes] == elsewhere.streamed - read
    assert homes["resident"] == layers - elsewhere.not_resident
    choice = SweepChoice.of_plan(placement, elsewhere.rules(layers, 1))
    assert len(choice.usual.loaded) == elsewhere.streamed
    # what is lent is lent, and nothing on disk; the constructor refuses what cannot be done
    small, usual = choice.of(1), choice.usual
    taken = small.mlp_on_cpu if elsewhere.mlps else small.on_cpu
    assert len({*taken} - {*usual.on_cpu, *usual.mlp_on_cpu}) == elsewhere.lent


@given(st.integers(3, 24), st.data())
def test_on_the_host_alone_homes_are_said_too(layers: int, data: st.DataObject) -> None:
    on_disk = data.draw(st.integers(1, layers))
    elsewhere = Elsewhere(on_disk=on_disk)
    homes = Counter(homes_by_layer(elsewhere.placement(layers)).values())
    assert (homes["disk"], homes["resident"]) == (on_disk, layers - on_disk)
    assert len(elsewhere.sweep(layers, prompts=False).streamed.on_disk) == on_disk


@st.composite
def small_questions(draw: st.DrawFn) -> Question:
    """Memories around what small models need; one request of some length."""
    spec: ModelSpec = draw(specs)
    lengths = {"prompt": draw(st.sampled_from(["20", "1500", "3900"])), "generate": "20"}
    share = st.floats(0, 1.3)
    base = ask(spec, "t4", requests=1, **lengths)
    weights = weight_bytes(spec, base.precision.weights)
    slack = draw(st.sampled_from([0, 1 << 20, 12 << 20, 64 << 20]))
    if draw(st.booleans()):
        size = int(draw(share) * weights) + slack
        question = alone(spec, host_bytes=size, requests=1, **lengths)
    else:
        workspace = Footprint(base).workspace("ride-along", 1)
        question = replace(
            base,
            device_bytes=int(draw(share) * weights) + workspace + slack,
            host_bytes=int(draw(share) * weights) + draw(st.sampled_from([0, 12 << 20])),
        )
    return replace(with_disk(question, 2e9), max_num_batched_tokens=MAX_TOKENS)


def engine_of(question: Question) -> tuple[EngineConfig, Capacities]:
    config = EngineConfig(
        "any",
        max_num_seqs=1,
        max_num_batched_tokens=MAX_TOKENS,
        max_model_len=question.lengths.longest_tokens,
    )
    if question.host_only:
        return config, Capacities(question.device_bytes, 0, "host", real=False)
    return config, Capacities(question.device_bytes, question.host_bytes)


@settings(max_examples=scaled(150))
@given(small_questions())
def test_what_an_engine_places_by_itself_is_planned_and_what_is_planned_an_engine_takes(
    question: Question,
) -> None:
    assume(question.host_only or question.host_bytes)
    config, capacities = engine_of(question)
    hardware = None if question.host_only else question.hardware
    try:
        placed = plan_memory(
            config, question.model, question.precision, capacities, hardware=hardware
        ).plan
    except ConfigError:
        placed = None
    if placed is not None and "disk-cpu" in homes_by_layer(placed.weights).values():
        placed = None  # which plans do not have (docs/plan.md)
    policy = POLICIES["gpu-only" if question.host_only else "auto"]
    candidates = list(Candidates(question, Footprint(question)).of(policy))
    if placed is not None:
        assert candidates, placed.weights
        # as many layers on disk as the engine has, or fewer, in some plan
        on_disk = [home for home in homes_by_layer(placed.weights).values() if "disk" in home]
        assert min(candidate.on_disk for candidate in candidates) <= len(on_disk)
    search = Search(question)
    for candidate in candidates[:: max(1, len(candidates) // 6)]:
        option = Option(candidate, search.predictor.predict(candidate))
        plan = online_plan(search, option)
        planned = PlanFile(
            "any", PlannedModel.of(question.model), "any", question.host_only, "auto", "auto",
            "auto", "auto", str(question.precision), plan,
        )  # fmt: skip
        again = PlanFile.from_json(planned.to_json()).online
        config = EngineConfig(model="any", **planned.settings)
        memory = plan_memory(config, question.model, question.precision, capacities, planned=again)
        assert replace(memory.plan, notes=()) == plan

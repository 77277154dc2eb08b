"""Which single experts stay on the accelerator: by memory, and by what has been counted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.cost.expert_use import ExpertUse
from tandem.engine.building.scheduler_options import prices_of
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.expert_hits_file import write_expert_hits
from tandem.engine.sizing.expert_placement import split_placements, void_hits
from tandem.engine.sizing.kv_reserve import HostKV
from tandem.engine.sizing.memory_plan import MemoryPlan, plan_memory
from tandem.engine.sizing.mlp_choice import PlacementTimes
from tandem.engine.sizing.weight_placement import WeightSizes
from tandem.memory.budget import MemoryBudget
from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import (
    MLPS_APART,
    Home,
    as_runs,
    homes_by_layer,
    layers_at,
    resident_experts,
)
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision
from tandem.spec.units import GIB

ROOT = Path(__file__).resolve().parents[3]
BF16 = Precision.uniform(DType.BFLOAT16)
CARD = load_hardware("rtx4090")
MOE, DENSE = plannable_spec("qwen3-30b-a3b"), plannable_spec("llama-3.1-8b")
COUNT = 128
SKEWED = [
    [10_000 // (1 + (expert - layer) % COUNT) for expert in range(COUNT)] for layer in range(48)
]
ALONE = EngineConfig("m", max_num_seqs=1, max_model_len=4096)


def plan(config: EngineConfig, gib: int = 12, spec: object = MOE) -> MemoryPlan:
    capacities = Capacities(gib * GIB, 100 * GIB, real=False)
    return plan_memory(config, spec, BF16, capacities, hardware=CARD)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def hits(tmp_path: Path) -> str:
    path = tmp_path / "hits.json"
    write_expert_hits(path, "qwen", SKEWED)
    return str(path)


@given(
    home=st.sampled_from(MLPS_APART),
    layers=st.integers(1, 12),
    experts=st.integers(1, 9),
    room=st.integers(0, 4000),
    host_room=st.integers(0, 4000),
    data=st.data(),
)
def test_the_most_used_experts_that_fit_are_resident(
    home: Home, layers: int, experts: int, room: int, host_room: int, data: st.DataObject
) -> None:
    router, expert, outside = 7, 30, 50
    mlp = router + experts * expert
    sizes = WeightSizes(100 + mlp, layers, outside, (), mlp, experts, router, expert)
    rows = st.lists(st.integers(0, 50), min_size=experts, max_size=experts)
    counts = [data.draw(rows) for _ in range(layers)]
    shares = tuple(tuple(float(count + 1) for count in row) for row in counts)
    base = sizes.spread(layers, home)
    slots = sizes.slots_bytes(base)  # of whole mixtures
    device = MemoryBudget("device", outside + 100 * layers + room + 5, {"workspace": 5})
    host = MemoryBudget("host", host_room, {})
    found = list(split_placements(sizes, device, host, 0, HostKV(), [base], ExpertUse(shares)))
    for placement in found:
        assert sizes.device_bytes(placement) <= device.left_bytes
        assert sizes.host_bytes(placement) <= host_room
        once = sizes.device_bytes(placement) - sizes.slots_bytes(placement)
        every = sizes.device_bytes(sizes.spread(0, "resident"))
        assert once + sizes.host_bytes(placement) == every
        single = resident_experts(placement)
        whole = set(range(layers)) - set(layers_at(placement, home))
        chosen = {(i, e) for i in range(layers) for e in single.get(i, ())}
        chosen |= {(i, e) for i in whole for e in range(experts)}
        # an expert left out is used no more than those taken, or its layer has no router there
        left = {(i, e) for i in range(layers) for e in range(experts)} - chosen
        opened = {i for i, _ in chosen}
        least = min(shares[i][e] for i, e in chosen)
        assert all(shares[i][e] <= least for i, e in left if i in opened)
        if any(i in opened for i, _ in left):
            assert sizes.device_bytes(placement) + expert > device.left_bytes
    if not found and layers * mlp <= host_room:
        assert room - slots < router + expert


def test_counts_decide_which_experts_stay(hits: str) -> None:
    memory = plan(replace(ALONE, expert_hits=hits))
    single = resident_experts(memory.plan.weights)
    assert set(homes_by_layer(memory.plan.weights).values()) == {"cpu-mlp"}
    assert set(single) == set(range(48))
    for layer, experts in single.items():  # in each layer the same ranks
        assert {(expert - layer) % COUNT for expert in experts} == set(range(len(experts)))
    (note,) = [note for note in memory.plan.notes if "experts" in note]
    assert f"but for {sum(map(len, single.values()))} experts" in note
    assert OnlinePlan.from_json(memory.plan.to_json()) == memory.plan


@pytest.mark.parametrize("gib", [8, 12, 22])
@pytest.mark.parametrize("rows", [1, 8])
def test_counted_experts_are_never_predicted_to_be_slower(hits: str, rows: int, gib: int) -> None:
    config = replace(ALONE, max_num_seqs=rows)
    times = PlacementTimes(MOE, BF16, CARD, rows, 2048, ExpertUse.of_counts(SKEWED, MOE))
    blind, seen = (plan(c, gib).plan.weights for c in (config, replace(config, expert_hits=hits)))
    assert times.choose(seen, blind) == seen
    if gib < 22:
        assert times.requests_s(seen, 1) < 0.8 * times.requests_s(blind, 1)


@pytest.mark.parametrize("tokens", [1, 8, 2048])
def test_steps_are_priced_by_the_counts_that_placed_the_experts(hits: str, tokens: int) -> None:
    config = replace(ALONE, expert_hits=hits)
    memory = plan(config)

    def linear_s(config: EngineConfig) -> float:
        prices = prices_of(memory.plan, MOE, BF16, memory.page, CARD, config, share=0.5)
        assert prices is not None
        return prices.linear.at(tokens)

    times = PlacementTimes(MOE, BF16, CARD, 1, 2048, ExpertUse.of_counts(SKEWED, MOE))
    assert linear_s(config) == pytest.approx(times.sweep_s(memory.plan.weights, tokens), rel=0.01)
    assert linear_s(config) <= linear_s(ALONE)
    if tokens == 1:
        assert linear_s(config) < 0.8 * linear_s(ALONE)


def test_the_documented_gain_is_what_is_predicted(tmp_path: Path) -> None:
    """docs/models-that-do-not-fit.md; the k-th most used expert is used 1 / k^0.7 as often."""
    counts = [
        [int(1e6 / (1 + (expert - layer) % COUNT) ** 0.7) for expert in range(COUNT)]
        for layer in range(48)
    ]
    path = tmp_path / "hits.json"
    write_expert_hits(path, "qwen", counts)
    asked = replace(ALONE, host_layers="mlp")
    times = PlacementTimes(MOE, BF16, CARD, 8, 2048, ExpertUse.of_counts(counts, MOE))
    memory = plan(replace(asked, expert_hits=str(path)))
    documented = (ROOT / "docs/models-that-do-not-fit.md").read_text()
    assert any(f"tandem: note: {note}\n" in documented for note in memory.plan.notes)
    for rows, without_s, with_s in ((1, 53.4e-3, 34.2e-3), (8, 262e-3, 202e-3)):
        assert times.sweep_s(plan(asked).plan.weights, rows) == pytest.approx(without_s, rel=0.005)
        assert times.sweep_s(memory.plan.weights, rows) == pytest.approx(with_s, rel=0.005)


def test_what_mlps_were_asked_for_is_filled_by_counts_only(hits: str) -> None:
    asked = replace(ALONE, host_layers="mlp")
    assert not resident_experts(plan(asked).plan.weights)
    assert resident_experts(plan(replace(asked, expert_hits=hits)).plan.weights)


def test_counts_change_nothing_where_everything_fits(hits: str) -> None:
    memory = plan(replace(ALONE, expert_hits=hits), gib=90)
    assert set(homes_by_layer(memory.plan.weights).values()) == {"resident"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"placement": "p.json"}, "--expert-hits has no meaning with --placement"),
        ({"host_layers": "stream"}, "no meaning with --host-layers stream"),
        ({"host_layers": "cpu"}, "no meaning with --host-layers cpu"),
    ],
)
def test_flags_that_exclude_counts_are_refused(
    hits: str, change: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(replace(ALONE, expert_hits=hits, **change))


def test_counts_without_an_accelerator_are_refused(hits: str) -> None:
    capacities = Capacities(100 * GIB, 0, device_location="host")
    with pytest.raises(ConfigError, match="places experts on an accelerator, and there is none"):
        plan_memory(replace(ALONE, expert_hits=hits), MOE, BF16, capacities)


@pytest.mark.parametrize(
    ("spec", "experts", "message"),
    [
        (DENSE, [1], "the model has none"),
        (MOE, [0, 128], "there are experts 0 to 127"),
        (MOE, [-1, 3], "there are experts 0 to 127"),
        (MOE, list(range(128)), "give the layer home 'resident'"),
        (MOE, [3, 3], "not in ascending order, each once"),
        (MOE, [True], "whole numbers"),
        (MOE, 3, "experts as a list"),
    ],
)
def test_experts_that_are_not_there_are_refused(
    spec: object, experts: object, message: str, tmp_path: Path
) -> None:
    run = {"first_layer": 3, "last_layer": 4, "home": "cpu-mlp", "experts": experts}
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": [run]}))
    with pytest.raises(ConfigError, match=message) as error:
        plan(replace(ALONE, placement=str(path)), 90, spec)
    assert error.value.param == "placement"


def test_experts_of_another_home_are_refused(tmp_path: Path) -> None:
    run = {"first_layer": 3, "last_layer": 4, "home": "cpu", "experts": [1]}
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": [run]}))
    with pytest.raises(ConfigError, match="only homes cpu-mlp and host-mlp"):
        plan(replace(ALONE, placement=str(path)), 90)


def blind(config: EngineConfig, gib: int = 12) -> MemoryPlan:
    """On a device of which nothing is known."""
    return plan_memory(config, MOE, BF16, Capacities(gib * GIB, 100 * GIB, real=False))


def test_where_rates_are_not_known_experts_are_the_cpu_s_and_counts_decide(hits: str) -> None:
    assert set(homes_by_layer(blind(ALONE).plan.weights).values()) == {"resident", "cpu-mlp"}
    counted = blind(replace(ALONE, expert_hits=hits))
    assert resident_experts(counted.plan.weights)
    assert not any("no effect" in note for note in counted.plan.notes)


@pytest.mark.parametrize(
    ("config", "gib", "counts", "reason"),
    [
        (ALONE, 90, SKEWED, "all experts fit on the accelerator"),
        (replace(ALONE, max_num_seqs=256), 4, [[1] * COUNT] * 48, "whole layers leave the"),
    ],
    ids=["fits", "streams"],
)
def test_counts_without_effect_are_said(
    config: EngineConfig, gib: int, counts: list[list[int]], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "counts.json"
    write_expert_hits(path, "qwen", counts)
    memory = plan(replace(config, expert_hits=str(path)), gib)
    assert not resident_experts(memory.plan.weights)
    assert void_hits(memory.plan.weights)[0] in memory.plan.notes
    (note,) = [note for note in memory.plan.notes if "--expert-hits" in note]
    assert note.startswith(f"--expert-hits has no effect: {reason}")


@pytest.mark.parametrize("home", MLPS_APART)
def test_counts_have_no_effect_on_whole_mixtures_alone(home: Home) -> None:
    (note,) = void_hits(as_runs(["resident", home, home]))
    assert "MLPs leave the accelerator whole" in note
    assert void_hits(as_runs(["resident", home, home], {1: (0, 3)})) == ()

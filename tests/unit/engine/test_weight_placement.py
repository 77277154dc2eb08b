"""Which layers are resident, and what is said when nothing fits."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.engine.sizing.placement_file import read_placement
from tandem.engine.sizing.weight_placement import (
    WeightSizes,
    all_resident,
    choose_placement,
)
from tandem.memory.budget import MemoryBudget
from tandem.plan.sweep_layers import SweepChoice, SweepLayers
from tandem.plan.weights import (
    HOMES,
    ON_DISK,
    Home,
    PlacedWeights,
    StreamedLayers,
    WeightPlacement,
    homes_by_layer,
    layers_at,
    streamed_layers,
)
from tandem.spec.errors import ConfigError

CPU = {"home": "cpu"}


@given(
    layers=st.integers(1, 90),
    layer=st.integers(1, 1000),
    outside=st.integers(0, 5000),
    used=st.integers(0, 3000),
    kv=st.integers(1, 3000),
    capacity=st.integers(0, 200_000),
)
def test_the_most_layers_that_fit_are_resident(
    layers: int, layer: int, outside: int, used: int, kv: int, capacity: int
) -> None:
    sizes = WeightSizes(layer, layers, outside)
    device = MemoryBudget("device", capacity, {"workspace": used})
    try:
        placement = choose_placement(sizes, device, kv)
    except ConfigError:
        assert capacity < outside + used + kv + layer * min(layers, 2 + layers % 2)
        return
    assert sorted(homes_by_layer(placement)) == list(range(layers))
    assert sizes.device_bytes(placement) + used + kv <= capacity
    streamed = streamed_layers(placement)
    if not streamed.layers:
        assert placement == all_resident(layers)
        return
    fewer = len(streamed.layers) - 2
    slots = 2 * layer if fewer else 0
    assert outside + (layers - fewer) * layer + slots + used + kv > capacity
    gaps = [b - a for a, b in zip(streamed.layers, streamed.layers[1:], strict=False)]
    assert max(gaps) - min(gaps) <= 1


@given(
    layers=st.integers(1, 90),
    attention=st.integers(1, 500),
    mlp=st.integers(1, 1000),
    capacity=st.integers(0, 200_000),
)
def test_the_most_mlps_that_fit_are_resident(
    layers: int, attention: int, mlp: int, capacity: int
) -> None:
    sizes = WeightSizes(attention + mlp, layers, outside=50, mlp=mlp)
    device = MemoryBudget("device", capacity, {"workspace": 7})
    try:
        placement = choose_placement(sizes, device, 3, "cpu-mlp")
    except ConfigError:
        assert capacity < sizes.least_device_bytes("cpu-mlp") + 10
        return
    moved = len(layers_at(placement, "cpu-mlp"))
    assert {*homes_by_layer(placement).values()} <= {"resident", "cpu-mlp"}
    assert sizes.device_bytes(placement) == 50 + layers * attention + (layers - moved) * mlp
    assert sizes.host_bytes(placement) == moved * mlp
    assert sizes.device_bytes(placement) + 10 <= capacity
    assert not moved or sizes.device_bytes(placement) + mlp + 10 > capacity


@given(
    layers=st.integers(1, 90),
    attention=st.integers(1, 500),
    mlp=st.integers(1, 1000),
    capacity=st.integers(0, 200_000),
)
def test_mlps_on_their_way_have_slots_of_their_size(
    layers: int, attention: int, mlp: int, capacity: int
) -> None:
    sizes = WeightSizes(attention + mlp, layers, outside=50, mlp=mlp)
    device = MemoryBudget("device", capacity, {"workspace": 7})
    try:
        placement = choose_placement(sizes, device, 3, "host-mlp")
    except ConfigError:
        assert capacity < sizes.least_device_bytes("host-mlp") + 10
        return
    assert {*homes_by_layer(placement).values()} <= {"resident", "host-mlp"}
    streamed = streamed_layers(placement)
    assert streamed.mlps == streamed.layers
    moved = len(streamed.layers)
    slots = 2 if moved else 0
    kept = 50 + layers * attention + (layers - moved + slots) * mlp
    assert sizes.device_bytes(placement) == kept
    assert sizes.host_bytes(placement) == moved * mlp
    assert kept + 10 <= capacity
    assert not moved or kept + 2 * mlp + 10 > capacity


def test_a_slot_that_whole_layers_go_through_too_has_their_size() -> None:
    sizes = WeightSizes(100, 4, outside=50, mlp=60)
    runs = (WeightPlacement(0, 0, "host-mlp"), WeightPlacement(1, 1, "streamed"))
    placement = (*runs, WeightPlacement(2, 3))
    assert sizes.device_bytes(placement) == 50 + 40 + 2 * 100 + 2 * 100
    assert sizes.host_bytes(placement) == 60 + 100


def test_a_slot_for_experts_has_the_size_of_what_comes_at_most() -> None:
    sizes = WeightSizes(100, 4, outside=50, mlp=64, experts=6, router=4, expert=10)
    runs = (WeightPlacement(0, 1, "host-mlp", (0, 3)), WeightPlacement(2, 3, "host-mlp", (5,)))
    assert sizes.slots_bytes(runs) == 2 * 50
    assert sizes.host_bytes(runs) == 2 * 40 + 2 * 50
    assert sizes.device_bytes(runs) == 50 + 4 * 36 + 2 * 24 + 2 * 14 + 2 * 50
    whole = (*runs[:1], WeightPlacement(2, 3, "host-mlp"))
    assert sizes.slots_bytes(whole) == 2 * 64
    assert sizes.slots_bytes((WeightPlacement(0, 3, "cpu-mlp", (1,)),)) == 0


def write(tmp_path: Path, value: object) -> Path:
    path = tmp_path / "placement.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_file_names_what_is_not_resident(tmp_path: Path) -> None:
    runs = [{"first_layer": 2, "last_layer": 3, "home": "streamed"}]
    layers = (
        WeightPlacement(0, 1),
        WeightPlacement(2, 3, "streamed"),
        WeightPlacement(4, 5),
    )
    assert read_placement(write(tmp_path, {"layers": runs}), 6) == PlacedWeights(layers)
    apart = {"layers": runs, "embedding": "host"}
    assert read_placement(write(tmp_path, apart), 6) == PlacedWeights(layers, "host")
    alone = read_placement(write(tmp_path, {"layers": [], "embedding": "host"}), 6, host_only=True)
    assert alone == PlacedWeights(all_resident(6)), "without an accelerator it is there already"


def test_layers_on_disk_go_to_the_accelerator_if_there_is_one(tmp_path: Path) -> None:
    runs = [
        {"first_layer": 0, "last_layer": 2, "home": "disk"},
        {"first_layer": 4, "last_layer": 4, "home": "streamed"},
    ]
    path = write(tmp_path, {"layers": runs})
    beside = read_placement(path, 6).layers
    assert streamed_layers(beside) == StreamedLayers((0, 1, 2, 4), on_disk=(0, 1, 2))
    alone = read_placement(write(tmp_path, {"layers": runs[:1]}), 6, host_only=True).layers
    assert alone[0] == WeightPlacement(0, 2, "disk")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "not JSON"),
        ([], "no JSON object"),
        ({"layers": [], "kv": 3}, "and nothing else"),
        ({"layers": 3}, "needs a list 'layers'"),
        ({"layers": [{"first": 1}]}, "needs first_layer"),
        ({"layers": [{"first_layer": 0, "last_layer": 1}]}, "last_layer and home"),
        ({"layers": [{"first_layer": 0, "last_layer": 6, **CPU}]}, "none of the model's 0 to 5"),
        ({"layers": [{"first_layer": 3, "last_layer": 1, **CPU}]}, "3 is beyond last_layer 1"),
        ({"layers": [{"first_layer": "0", "last_layer": 1, **CPU}]}, "whole numbers"),
        ({"layers": [{"first_layer": 0, "last_layer": 1, "home": "moon"}]}, "home 'moon'"),
        ({"layers": [{"first_layer": 0, "last_layer": 1, **CPU}] * 2}, "placed twice"),
    ],
)
def test_files_that_say_something_else_are_refused(
    tmp_path: Path, value: object, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read_placement(write(tmp_path, value), 6)
    assert error.value.param == "placement"


@given(homes=st.lists(st.sampled_from(HOMES), min_size=1, max_size=12))
def test_any_number_of_layers_may_be_streamed(
    tmp_path_factory: pytest.TempPathFactory, homes: list[Home]
) -> None:
    runs = [{"first_layer": i, "last_layer": i, "home": home} for i, home in enumerate(homes)]
    path = write(tmp_path_factory.mktemp("placement"), {"layers": runs})
    slotted = [home in ("streamed", "host", "host-mlp", "disk") for home in homes]
    if {"disk", "disk-cpu"} <= {*homes} and sum(slotted) <= 2:
        with pytest.raises(ConfigError, match=r"placement\.json: .* once and stay"):
            read_placement(path, len(homes))
        return
    sweep = SweepChoice.of_plan(read_placement(path, len(homes)).layers).usual
    assert sweep.loaded == tuple(i for i, there in enumerate(slotted) if there)
    assert sweep.streamed.slots == min(2, sum(slotted))
    assert sweep.read_on_cpu == tuple(i for i, home in enumerate(homes) if home == "disk-cpu")


def test_without_an_accelerator_the_cpu_computes_layers_on_disk_by_either_name(
    tmp_path: Path,
) -> None:
    runs = [{"first_layer": i, "last_layer": i, "home": h} for i, h in enumerate(ON_DISK[:2])]
    found = read_placement(write(tmp_path, {"layers": runs}), 3, host_only=True).layers
    assert found == (WeightPlacement(0, 1, "disk"), WeightPlacement(2, 2))


def test_a_file_that_nests_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_placement(path, 6)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_placement(tmp_path / "none.json", 6)


def test_slots_are_taken_in_turn() -> None:
    sweep = SweepLayers(StreamedLayers((1, 4, 5, 7)))
    assert list(sweep.successors.values()) == [5, 7, 1, 4]
    odd = SweepLayers(StreamedLayers((1, 4, 5)))
    assert list(odd.successors.values()) == [5, 1, 4]


def test_a_sweep_streams_what_it_begins_with_or_nothing() -> None:
    streamed = StreamedLayers((1, 4, 5, 7))
    assert SweepLayers(streamed, on_cpu=(5,)).loaded == (1, 4, 7)
    assert SweepLayers(streamed, on_cpu=streamed.layers).loaded == ()
    with pytest.raises(ConfigError, match=r"without layers \[1, 4\]"):
        SweepLayers(streamed, on_cpu=(4, 5))

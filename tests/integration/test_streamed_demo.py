"""The demo model on an accelerator that cannot hold it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.four_requests import serve

from tandem.engine.building.build import build_engine_core
from tandem.engine.stats import EngineStats
from tandem.spec.config import EngineConfig, HostLayers, KVPlacement
from tandem.spec.errors import ConfigError

CONFIG = EngineConfig(
    "demo",
    accelerator="emulated:exact,seed=5",
    gpu_memory="64MiB",
    cpu_memory="64MiB",
    block_size=16,
    max_model_len=200,
    max_num_seqs=4,
    max_num_batched_tokens=64,
)


@pytest.mark.parametrize("dtype", ["auto", "float32"])
@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along", "rendezvous"])
def test_tokens_are_the_same_and_memory_is_kept(dtype: str, strategy: str) -> None:
    config = replace(CONFIG, dtype=dtype, strategy=strategy)
    expected, ample = serve(config)
    scarce = "8MiB" if dtype == "auto" else "14MiB"
    tokens, stats = serve(replace(config, gpu_memory=scarce, host_layers="stream"))
    assert tokens == expected
    assert not any("streamed" in note for note in ample.notes)
    assert any("streamed" in note for note in stats.notes)
    rows = [row for row in stats.memory if row.label == "weights"]
    assert {row.location for row in rows} == {"device", "host"}
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    device = next(each for each in stats.memory_totals if each.location == "device")
    assert device.peak_bytes is not None
    assert device.peak_bytes <= (device.capacity_bytes or 0)
    assert device.grown_bytes == 0


def test_a_file_overrides_the_choice(tmp_path: Path) -> None:
    expected, _ = serve(CONFIG)
    runs = [{"first_layer": 1, "last_layer": 4, "home": "streamed"}]
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": runs}))
    tokens, stats = serve(replace(CONFIG, placement=str(path)))
    assert tokens == expected
    assert any("4 of 6 layers" in note for note in stats.notes)


@pytest.mark.parametrize("host_layers", ["stream", "cpu", "mlp"])
def test_what_does_not_fit_goes_the_way_that_is_asked_for(host_layers: HostLayers) -> None:
    expected, _ = serve(CONFIG)
    config = replace(CONFIG, gpu_memory="8MiB", host_layers=host_layers)
    tokens, stats = serve(config)
    assert tokens == expected
    check_memory(stats)
    said = {
        "stream": "are streamed",
        "cpu": "are computed on the CPU",
        "mlp": "the MLPs of",
    }[host_layers]
    assert any(said in note for note in stats.notes)


@pytest.mark.parametrize(
    "homes",
    [
        {0: "cpu", 1: "cpu", 2: "cpu", 3: "cpu", 4: "cpu", 5: "cpu"},
        {0: "streamed", 2: "cpu", 3: "streamed", 5: "cpu"},
        {0: "host", 1: "host", 2: "host", 3: "host", 4: "cpu"},
        dict.fromkeys(range(6), "cpu-mlp"),
        {0: "cpu-mlp", 1: "host", 2: "cpu", 4: "host", 5: "cpu-mlp"},
        dict.fromkeys(range(6), "host-mlp"),
        {0: "host-mlp", 1: "host-mlp", 2: "cpu-mlp", 3: "host", 5: "host-mlp"},
    ],
    ids=[
        "all-on-the-cpu",
        "both",
        "by-step",
        "all-mlps",
        "some-mlps",
        "mlps-by-step",
        "layers-and-mlps-by-step",
    ],
)
@pytest.mark.parametrize("kv_placement", ["auto", "host", "split"])
def test_any_placement_gives_the_same_tokens_and_keeps_to_memory(
    homes: dict[int, str], kv_placement: KVPlacement, tmp_path: Path
) -> None:
    expected, _ = serve(CONFIG)
    runs = [{"first_layer": n, "last_layer": n, "home": home} for n, home in homes.items()]
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": runs}))
    tokens, stats = serve(replace(CONFIG, placement=str(path), kv_placement=kv_placement))
    assert tokens == expected
    check_memory(stats)


def check_memory(stats: EngineStats) -> None:
    """Weights to the byte in each memory; activations within what was told."""
    rows = {(row.location, row.label): row for row in stats.memory}
    for place in ("device", "host"):
        weights = rows[place, "weights"]
        assert weights.actual_bytes == weights.predicted_bytes
    for row in (rows["device", "workspace"], rows["host", "staging"]):
        assert row.actual_bytes is not None
        assert row.actual_bytes <= row.predicted_bytes
    device = next(each for each in stats.memory_totals if each.location == "device")
    assert device.peak_bytes is not None
    assert device.peak_bytes <= (device.capacity_bytes or 0)
    assert device.grown_bytes == 0


@pytest.mark.parametrize("quantization", ["int4", "w8a8"])
def test_quantized_mlps_are_charged_to_the_byte(quantization: str) -> None:
    config = replace(CONFIG, quantization=quantization, strategy="rendezvous")
    expected, _ = serve(config)
    tokens, stats = serve(replace(config, gpu_memory="6MiB", host_layers="mlp"))
    check_memory(stats)
    assert any("the MLPs of" in note for note in stats.notes)
    if quantization != "w8a8":  # the accelerator's part does not round activations
        assert tokens == expected


def test_cohorts_need_a_layer_on_the_accelerator(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    runs = [{"first_layer": 0, "last_layer": 5, "home": "cpu"}]
    path.write_text(json.dumps({"layers": runs}))
    with pytest.raises(ConfigError, match="rendezvous needs a layer on the accelerator"):
        build_engine_core(replace(CONFIG, placement=str(path), strategy="rendezvous"))


def test_passes_between_layers_need_them_all_on_the_accelerator() -> None:
    with pytest.raises(ConfigError, match="asymmetric needs all layers on the accelerator"):
        build_engine_core(replace(CONFIG, gpu_memory="6MiB", strategy="asymmetric"))


def test_without_an_accelerator_there_is_nothing_beside_which_to_compute(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": [{"first_layer": 0, "last_layer": 5, "home": "cpu"}]}))
    config = replace(CONFIG, accelerator="none", gpu_memory="auto", placement=str(path))
    with pytest.raises(ConfigError, match=r"computed on the CPU beside it, .* only"):
        build_engine_core(config)

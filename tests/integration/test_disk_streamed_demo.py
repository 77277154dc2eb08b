"""The demo model in less memory than it takes, beside an accelerator: the rest comes from disk."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.four_requests import generate, serve

from tandem.engine.building.build import build_engine_core
from tandem.engine.stats import EngineStats
from tandem.kernels import native
from tandem.models.resolve import resolve_model
from tandem.spec.config import EngineConfig, HostLayers
from tandem.spec.errors import ConfigError, EngineDeadError
from tandem.spec.units import parse_size

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

AMPLE = EngineConfig(
    "demo",
    accelerator="emulated:exact,seed=5",
    gpu_memory="64MiB",
    cpu_memory="64MiB",
    dtype="float32",  # large against the reader's own buffers
    block_size=16,
    max_model_len=200,
    max_num_seqs=4,
    max_num_batched_tokens=64,
)
SCARCE = replace(AMPLE, gpu_memory="13MiB")


def placed(tmp_path: Path, homes: dict[int, str]) -> str:
    path = tmp_path / "placement.json"
    runs = [{"first_layer": n, "last_layer": n, "home": home} for n, home in homes.items()]
    path.write_text(json.dumps({"layers": runs}))
    return str(path)


def least_memory(config: EngineConfig) -> str:
    """What a refusal names as enough."""
    with pytest.raises(ConfigError, match="too small even to read from disk") as error:
        build_engine_core(replace(config, cpu_memory="1MiB"))
    assert error.value.param == "cpu_memory"
    named = re.search(r"--cpu-memory (\w+) or more", str(error.value))
    assert named is not None
    return named[1]


def check_memory(config: EngineConfig, stats: EngineStats, on_disk: bool = True) -> None:
    """Weights to the byte in each memory, and no more than may be used."""
    rows = {(row.location, row.label): row for row in stats.memory}
    labels = {("device", "weights"), ("host", "weights"), ("disk", "weights")}
    if on_disk:
        labels |= {("host", "weight slots")}
        assert ("disk", "weights") in rows
    for key in labels & rows.keys():
        assert rows[key].actual_bytes == rows[key].predicted_bytes
    held = sum(
        rows[key].predicted_bytes
        for key in (("host", "weights"), ("host", "weight slots"), ("host", "kv pool"))
        if key in rows
    )
    assert held <= parse_size(config.cpu_memory)
    device = next(each for each in stats.memory_totals if each.location == "device")
    assert device.peak_bytes is not None
    assert device.peak_bytes <= (device.capacity_bytes or 0)
    assert device.grown_bytes == 0


@pytest.fixture(scope="module")
def expected() -> dict[str, list[int]]:
    return serve(AMPLE)[0]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The demo model in files that a test may spoil."""
    return Path(shutil.copytree(resolve_model("demo"), tmp_path / "model"))


@pytest.mark.parametrize("host_layers", ["auto", "stream", "cpu"])
@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
def test_what_fits_nowhere_comes_from_disk(
    host_layers: HostLayers, strategy: str, expected: dict[str, list[int]], tmp_path: Path
) -> None:
    config = replace(
        SCARCE, host_layers=host_layers, strategy=strategy, spool_dir=str(tmp_path / "spool")
    )
    config = replace(config, cpu_memory=least_memory(config))
    tokens, stats = serve(config)
    assert tokens == expected
    ways = {
        "stream": "streamed",
        "cpu": "read and computed",
        "auto": "(streamed|read and computed)",
    }
    assert re.search(f"stay on disk and are {ways[host_layers]}", " ".join(stats.notes))
    check_memory(config, stats)
    assert not list((tmp_path / "spool").iterdir())


@given(st.integers(0, 12 << 20))
@settings(max_examples=6, deadline=None)
def test_tokens_are_the_same_in_any_memory(expected: dict[str, list[int]], more: int) -> None:
    config = replace(SCARCE, cpu_memory=str(parse_size(least_memory(SCARCE)) + more))
    tokens, stats = serve(config)
    assert tokens == expected
    check_memory(config, stats, on_disk=False)


@pytest.mark.parametrize(
    "homes",
    [
        {0: "disk", 1: "streamed", 2: "disk", 3: "disk"},
        {0: "disk", 2: "cpu", 3: "disk", 4: "host", 5: "host"},
        dict.fromkeys(range(6), "disk"),
        {0: "disk-cpu", 1: "cpu", 2: "disk-cpu", 3: "streamed", 4: "cpu-mlp", 5: "disk-cpu"},
        dict.fromkeys(range(6), "disk-cpu"),
        {0: "disk", 1: "disk-cpu", 2: "host", 3: "disk", 4: "disk-cpu", 5: "disk"},
    ],
    ids=["streamed", "cpu-and-host", "all", "computed", "all-computed", "both"],
)
def test_a_file_places_layers_on_disk(
    homes: dict[int, str], expected: dict[str, list[int]], tmp_path: Path
) -> None:
    config = replace(AMPLE, placement=placed(tmp_path, homes), spool_dir=str(tmp_path / "spool"))
    tokens, stats = serve(config)
    assert tokens == expected
    check_memory(config, stats)


def test_layers_on_disk_that_would_stay_on_the_accelerator_are_not_read_for_it(
    tmp_path: Path,
) -> None:
    config = replace(AMPLE, placement=placed(tmp_path, {0: "disk", 2: "disk-cpu", 3: "disk"}))
    with pytest.raises(ConfigError, match=r"layers \[0, 3\] .* once and stay, .* home resident"):
        build_engine_core(config)


def test_the_cpu_computes_layers_on_disk_where_the_accelerator_has_no_room_for_slots(
    expected: dict[str, list[int]], tmp_path: Path
) -> None:
    small = replace(SCARCE, spool_dir=str(tmp_path), host_layers="stream")
    with pytest.raises(ConfigError, match="layers on their way") as refused:
        build_engine_core(replace(small, gpu_memory="8MiB"))
    assert "--host-layers cpu" in str(refused.value)
    config = replace(small, gpu_memory="8MiB", host_layers="cpu")
    config = replace(config, cpu_memory=least_memory(config))
    tokens, stats = serve(config)
    assert tokens == expected
    check_memory(config, stats)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 8)


def overwrite(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        stream.write(b"nothing of a model")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(cut, "model.safetensors was c"), (overwrite, "model.safetensors was changed")],
)
def test_a_file_that_changes_ends_the_run(
    copied: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    homes = dict.fromkeys(range(6), "disk")
    config = replace(AMPLE, model=str(copied), dtype="auto", placement=placed(tmp_path, homes))
    core = build_engine_core(config)
    try:
        generate(core)
        spoil(copied / "model.safetensors")
        with pytest.raises(EngineDeadError, match=message):
            generate(core)
    finally:
        core.close()


def test_a_deleted_file_is_read_on(copied: Path, tmp_path: Path) -> None:
    homes = dict.fromkeys(range(6), "disk")
    config = replace(AMPLE, model=str(copied), dtype="auto", placement=placed(tmp_path, homes))
    core = build_engine_core(config)
    try:
        expected = generate(core)
        shutil.rmtree(copied)
        assert generate(core) == expected
    finally:
        core.close()


def test_without_the_compiled_core_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native, "available", lambda: False)
    config = replace(AMPLE, placement=placed(tmp_path, {1: "disk", 2: "disk"}))
    with pytest.raises(ConfigError, match="reading them from disk needs the compiled kernels"):
        build_engine_core(config)

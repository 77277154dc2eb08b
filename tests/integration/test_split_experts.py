"""Engines whose accelerator has some of a mixture's experts: by a file, and by counts of a run."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.four_requests import serve
from tests.support.small_mixture import check_hits, check_weights, small_mixture

from tandem.engine.building.build import build_engine_core
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    directory = tmp_path_factory.mktemp("split")
    return small_mixture(directory, accelerator="emulated:exact,seed=5", gpu_memory="7MiB")


@pytest.fixture(scope="module")
def expected(config: EngineConfig) -> dict[str, list[int]]:
    tokens, _ = serve(replace(config, accelerator="none", gpu_memory="auto"))
    return tokens


@pytest.mark.parametrize("home", ["cpu-mlp", "host-mlp"])
@pytest.mark.parametrize("quantization", ["auto", "int8"])
@pytest.mark.parametrize("experts", [[0], [1, 2, 7, 15], list(range(15))], ids=len)
def test_a_file_places_single_experts(
    experts: list[int],
    quantization: str,
    home: str,
    config: EngineConfig,
    expected: dict[str, list[int]],
    tmp_path: Path,
) -> None:
    runs = [
        {"first_layer": 1, "last_layer": 2, "home": home, "experts": experts},
        {"first_layer": 4, "last_layer": 4, "home": home},
    ]
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"layers": runs}))
    config = replace(config, gpu_memory="12MiB", placement=str(placement))
    if quantization != "auto":
        plain = replace(config, accelerator="none", gpu_memory="auto", placement=None)
        expected, _ = serve(replace(plain, quantization=quantization))
    tokens, stats = serve(replace(config, quantization=quantization))
    assert tokens == expected
    check_hits(stats)
    check_weights(stats, "device", "host")
    assert any(f"but for {2 * len(experts)} experts" in note for note in stats.notes)


def test_counts_of_one_run_place_the_experts_of_another(
    config: EngineConfig, expected: dict[str, list[int]], tmp_path: Path
) -> None:
    path = tmp_path / "hits.json"
    asked = replace(config, host_layers="mlp")
    tokens, counted = serve(replace(asked, save_expert_hits=str(path)))
    assert tokens == expected
    assert json.loads(path.read_text()) == {
        "format": 1,
        "model": Path(config.model).name,
        "expert_hits": [list(row) for row in counted.expert_hits],
    }
    core = build_engine_core(replace(asked, expert_hits=str(path)))
    core.close()
    tokens, stats = serve(replace(asked, expert_hits=str(path)))
    assert tokens == expected
    check_hits(stats)
    check_weights(stats, "device", "host")
    assert any(
        "experts" in note and "which the accelerator computes" in note for note in stats.notes
    )
    assert stats.expert_hits == counted.expert_hits


def test_counts_of_another_model_are_refused(config: EngineConfig, tmp_path: Path) -> None:
    path = tmp_path / "hits.json"
    path.write_text(json.dumps({"format": 1, "model": "other", "expert_hits": [[1, 2]] * 6}))
    with pytest.raises(ConfigError, match="layer 0 of 'other' has experts, but not of this model"):
        build_engine_core(replace(config, expert_hits=str(path)))


def test_counts_that_cannot_be_kept_are_refused_before_loading(
    config: EngineConfig, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="cannot write expert hits"):
        build_engine_core(replace(config, save_expert_hits=str(tmp_path / "none" / "hits.json")))

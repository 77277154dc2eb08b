"""Engines with a mixture of experts: the same tokens wherever its layers lie, and counted use."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.four_requests import serve
from tests.support.small_mixture import check_hits, check_weights, small_mixture

from tandem.spec.config import EngineConfig


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return small_mixture(tmp_path_factory.mktemp("experts"))


def test_tokens_do_not_depend_on_where_layers_lie(config: EngineConfig) -> None:
    expected, alone = serve(config)
    check_hits(alone)
    emulated = replace(config, accelerator="emulated:exact,seed=5", gpu_memory="12MiB")
    tokens, resident = serve(emulated)
    assert tokens == expected
    assert not any("streamed" in note for note in resident.notes)
    check_hits(resident)
    tokens, stats = serve(replace(emulated, gpu_memory="7MiB", host_layers="stream"))
    assert tokens == expected
    assert any("streamed" in note for note in stats.notes)
    assert stats.expert_hits == resident.expert_hits
    check_weights(stats, "device", "host")


@pytest.mark.parametrize("quantization", ["auto", "int8"])
def test_layers_with_experts_may_be_on_disk(
    quantization: str, config: EngineConfig, tmp_path: Path
) -> None:
    config = replace(config, quantization=quantization, spool_dir=str(tmp_path))
    expected, _ = serve(config)
    runs = [{"first_layer": first, "last_layer": first + 1, "home": "disk"} for first in (1, 4)]
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"layers": runs}))
    tokens, stats = serve(replace(config, placement=str(placement)))
    assert tokens == expected
    check_hits(stats)
    check_weights(stats, "host", "disk")


def test_experts_may_be_quantized_and_routers_are_not(config: EngineConfig) -> None:
    expected, alone = serve(replace(config, quantization="int8"))
    emulated = replace(config, accelerator="emulated:exact,seed=5", quantization="int8")
    tokens, stats = serve(replace(emulated, gpu_memory="3MiB"))
    assert tokens == expected
    check_hits(stats)
    assert any("approximate weights" in note for note in alone.notes)
    assert any("streamed" in note for note in stats.notes)
    rows = [row for row in (*alone.memory, *stats.memory) if row.label == "weights"]
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    rounded, _ = serve(replace(config, quantization="w8a8"))
    assert {name: len(ids) for name, ids in rounded.items()} == dict.fromkeys(expected, 12)

"""Engines with a mixture of experts: the same tokens wherever its layers lie, and counted use."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.script import run_all
from tests.unit.models.configs import QWEN3_30B_A3B, write

from tandem.engine.build import build_engine_core
from tandem.engine.stats import EngineStats
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SMALL = QWEN3_30B_A3B | {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "moe_intermediate_size": 64,
    "num_hidden_layers": 6,
    "mlp_only_layers": [0, 3],
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
PROMPTS = [tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 40 * i)) for i in range(4)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    return EngineConfig(
        str(write(tmp_path_factory.mktemp("experts"), SMALL)),
        load_format="dummy",
        dtype="float32",
        accelerator="none",
        cpu_memory="256MiB",
        block_size=16,
        max_model_len=200,
        max_num_seqs=4,
        max_num_batched_tokens=64,
    )


def serve(config: EngineConfig) -> tuple[dict[str, list[int]], EngineStats]:
    core = build_engine_core(config, check=True)
    requests = [EngineRequest(str(i), prompt, GREEDY) for i, prompt in enumerate(PROMPTS)]
    results = run_all(core, requests)
    stats = core.stats()
    core.close()
    return {name: result.token_ids for name, result in results.items()}, stats


def check_hits(stats: EngineStats) -> None:
    """Every token of every request was computed once, and went to four experts of a layer."""
    computed = sum(len(prompt) + 11 for prompt in PROMPTS)
    sums = [sum(layer) for layer in stats.expert_hits]
    assert [bool(count) for count in sums] == [False, True, True, False, True, True]
    # Launch-ahead may compute a token beyond an end.
    assert all(4 * computed <= count <= 4 * (computed + 4) for count in sums if count)


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
    rows = [row for row in stats.memory if row.label == "weights"]
    assert {row.location for row in rows} == {"device", "host"}
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    device = next(each for each in stats.memory_totals if each.location == "device")
    assert device.grown_bytes == 0


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
    rows = [row for row in stats.memory if row.label == "weights"]
    assert {row.location for row in rows} == {"host", "disk"}
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)


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

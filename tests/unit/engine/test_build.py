"""Building an engine: what a model's files say about its ends."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.script import run_all

from tandem.engine.building import model_loading
from tandem.engine.building.build import build_engine_core
from tandem.engine.building.parts import build_parts
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.request import EngineRequest, FinishReason
from tandem.spec.sampling import SamplingParams

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "dtype": "float32",
    "eos_token_id": [2, 32, 50],
}


def test_ends_outside_the_vocabulary_are_dropped_and_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    config = EngineConfig(
        str(tmp_path), accelerator="none", load_format="dummy", cpu_memory="128MiB", max_num_seqs=2
    )
    core = build_engine_core(config, check=True)
    params = SamplingParams(max_tokens=5, min_tokens=3, temperature=0.0, logit_bias=((2, 100.0),))
    result = run_all(core, [EngineRequest("r", (1, 5, 9), params)])["r"]
    assert result.finish_reason is FinishReason.STOP
    assert (len(result.token_ids), result.stop_token_id) == (4, 2)
    assert any("outside the vocabulary of 32: 32, 50" in note for note in core.stats().notes)
    core.close()


@pytest.mark.parametrize("accelerator", ["none", "emulated"])
@pytest.mark.parametrize("kv", ["float16", "bfloat16", "fp8", "int8", "int4"])
def test_the_kv_cache_has_the_type_that_is_asked_for(
    tmp_path: Path, accelerator: str, kv: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    config = EngineConfig(
        str(tmp_path),
        accelerator=accelerator,
        load_format="dummy",
        cpu_memory="128MiB",
        kv_cache_dtype=kv,
        max_num_seqs=2,
    )
    core = build_engine_core(config, check=True)
    params = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
    result = run_all(core, [EngineRequest("r", tuple(range(1, 30)), params)])["r"]
    assert len(result.token_ids) == 5
    # 2 layers, 2 heads of 4, 64 tokens: K and V; codes fill up rows of 32, with 4 bytes of a scale
    head = {"float16": 8, "bfloat16": 8, "fp8": 4, "int8": 32 + 4, "int4": 16 + 4}[kv]
    assert {tier.block_bytes for tier in core.stats().tiers} == {2 * 2 * 2 * 64 * head}
    assert any("approximate KV cache" in n for n in core.stats().notes) == ("float" not in kv)
    core.close()


def test_the_host_s_pages_have_a_type_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    config = EngineConfig(
        str(tmp_path),
        accelerator="emulated:exact,seed=3",
        load_format="dummy",
        gpu_memory="8MiB",
        cpu_memory="128MiB",
        cpu_kv_dtype="int8",
        kv_placement="split",
        max_num_seqs=2,
    )
    core = build_engine_core(config, check=True)
    params = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)
    result = run_all(core, [EngineRequest("r", tuple(i % 30 for i in range(100)), params)])["r"]
    assert len(result.token_ids) == 5
    stats = core.stats()
    assert stats.host_attention_tokens > 0 < stats.device_attention_tokens
    # float32 heads of 4; codes fill up rows of 32, with 4 bytes of a scale and a minimum
    assert {t.tier: t.block_bytes // (2 * 2 * 2 * 64) for t in stats.tiers} == {
        "device": 16, "host": 36
    }  # fmt: skip
    pools = [row for row in stats.memory if row.label == "kv pool"]
    assert len(pools) == 2
    assert all(row.actual_bytes == row.predicted_bytes > 0 for row in pools)
    assert stats.dtype == "float32, int8 KV on the host"
    assert any(note.startswith("KV on the host: int8") for note in stats.notes)
    core.close()


def test_a_host_type_of_its_own_needs_an_accelerator(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    config = EngineConfig(
        str(tmp_path), accelerator="none", load_format="dummy", cpu_kv_dtype="int8"
    )
    with pytest.raises(ConfigError, match="without one all KV is of one type; use --kv-cache-dty"):
        build_engine_core(config)


@pytest.mark.parametrize("scaling", ["dynamic", "longrope"])
@pytest.mark.parametrize("length", [None, 300])
def test_the_length_that_is_asked_for_decides_the_rotation(
    scaling: str, length: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Model] = []

    def load(*args: Any, **options: Any) -> Model:
        loaded.append(load_model(*args, **options))
        return loaded[-1]

    monkeypatch.setattr(model_loading, "load_model", load)
    rope = {"rope_type": scaling, "factor": 4.0}
    if scaling == "longrope":
        rope |= {"short_factor": [1.0] * 2, "long_factor": [3.0] * 2}
    positions = {"max_position_embeddings": 128 if scaling == "dynamic" else 512}
    changes = {"rope_scaling": rope, "original_max_position_embeddings": 128, **positions}
    (tmp_path / "config.json").write_text(json.dumps(MODEL | changes))
    config = EngineConfig(
        str(tmp_path),
        accelerator="none",
        load_format="dummy",
        cpu_memory="128MiB",
        max_num_seqs=2,
        max_model_len=length,
    )
    parts = build_parts(config)
    exact = read_model_spec(tmp_path)
    assert parts.memory.plan.max_model_len == (length or 128)
    assert loaded[0].spec.rope == parts.spec.rope == exact.for_length(length).rope
    assert (parts.spec.rope == exact.rope) == (length is None)
    (note,) = (note for note in parts.memory.plan.notes if "rotary scaling" in note)
    assert ("up to 512 rotates" in note) == (length is None)
    parts.assembled.machine.free()


def test_graphs_of_an_engine_give_its_tokens_and_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    config = EngineConfig(
        str(tmp_path),
        accelerator="emulated",
        load_format="dummy",
        gpu_memory="64MiB",
        cpu_memory="128MiB",
        max_num_seqs=3,
        max_num_batched_tokens=64,
    )
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    requests = [EngineRequest(str(i), tuple(range(1, 6 + 9 * i)), params) for i in range(3)]
    tokens: dict[str, list[list[int]]] = {}
    for graphs in ("off", "on"):
        core = build_engine_core(replace(config, cuda_graphs=graphs), check=True)
        results = run_all(core, requests)
        tokens[graphs] = [results[request.request_id].token_ids for request in requests]
        stats = core.stats()
        core.close()
        told = [note for note in stats.notes if "graphs of 1, 2, 3 rows" in note]
        # of steps that only decode, and of layers
        assert len(told) == (graphs == "on")
        layers = [note for note in stats.notes if "graphs of 1, 2, 3 tokens" in note]
        assert len(layers) == (graphs == "on")
        charged = {row.label for row in stats.memory if row.location == "device"}
        assert ("CUDA graphs" in charged) == (graphs == "on")
    assert tokens["on"] == tokens["off"]
    with pytest.raises(ConfigError, match="--cuda-graphs on has no meaning without an accelerator"):
        build_engine_core(replace(config, cuda_graphs="on", accelerator="none", gpu_memory="auto"))

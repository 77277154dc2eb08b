"""The demo model with weights of 8 and 4 bits: memory as predicted, tokens wherever they lie."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.integration.test_streamed_demo import CONFIG, serve

from tandem.engine.building.build import build_engine_core
from tandem.engine.building.paced import build_paced_core
from tandem.engine.stats import EngineStats
from tandem.kernels import native
from tandem.models.config import read_model_spec
from tandem.models.resolve import resolve_model
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware

HOST = replace(CONFIG, accelerator="none", gpu_memory="auto", cpu_memory="256MiB")


def weights(stats: EngineStats) -> dict[str, int]:
    rows = [row for row in stats.memory if row.label == "weights"]
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    return {row.location: row.predicted_bytes for row in rows}


@pytest.mark.parametrize(("quantization", "scarce"), [("int8", "7MiB"), ("int4:32", "6MiB")])
def test_tokens_are_the_same_resident_streamed_and_on_the_host(
    quantization: str, scarce: str
) -> None:
    config = replace(CONFIG, quantization=quantization)
    expected, ample = serve(config)
    streamed_tokens, streamed = serve(replace(config, gpu_memory=scarce))
    host_tokens, on_host = serve(replace(HOST, quantization=quantization))
    assert expected == streamed_tokens == host_tokens
    assert set(weights(ample)) == {"device"}
    assert set(weights(streamed)) == {"device", "host"}
    assert weights(on_host) == {"host": weights(ample)["device"]}
    assert any(f"in {quantization}" in note for note in ample.notes)
    assert ample.dtype.startswith(f"{quantization.partition(':')[0]}:")


@pytest.mark.skipif(not native.available(), reason="layers on disk need the compiled kernels")
def test_layers_beyond_the_hosts_memory_are_read_from_disk(tmp_path: Path) -> None:
    config = replace(HOST, quantization="int4:32", spool_dir=str(tmp_path))
    expected, ample = serve(config)
    runs = [{"first_layer": 1, "last_layer": 4, "home": "disk"}]
    placement = tmp_path / "placement.json"
    placement.write_text(json.dumps({"layers": runs}))
    tokens, stats = serve(replace(config, placement=str(placement)))
    assert tokens == expected
    assert weights(stats)["host"] < weights(ample)["host"]


def test_few_bits_take_little_memory() -> None:
    sizes = {
        kind: weights(serve(replace(HOST, quantization=kind))[1])["host"]
        for kind in ("none", "int8", "int4")
    }
    outside = 2 * (4096 * 256 + 256 * 13)
    layers = {kind: size - outside for kind, size in sizes.items()}
    assert layers["int8"] == pytest.approx(layers["none"] * (8 + 24 / 64) / 16)
    assert layers["int4"] == pytest.approx(layers["none"] * (4 + 24 / 64) / 16)


@pytest.mark.skipif(not native.available(), reason="needs the compiled kernels")
def test_int8_activations_change_little_but_something() -> None:
    weights_only, _ = serve(replace(HOST, quantization="int8"))
    tokens, stats = serve(replace(HOST, quantization="w8a8"))
    same = [
        a == b for name in tokens for a, b in zip(tokens[name], weights_only[name], strict=True)
    ]
    assert sum(same) > len(same) / 2
    assert any("rounded to 8 bits" in note for note in stats.notes)


def test_groups_that_do_not_divide_are_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rows of 704 .* use a group of 32 or 64"):
        build_engine_core(replace(HOST, quantization="int8:128"))


def test_kv_that_lies_on_the_host_is_rounded_as_it_is_without_an_accelerator() -> None:
    expected, _ = serve(replace(HOST, kv_cache_dtype="int8"))
    config = replace(CONFIG, cpu_kv_dtype="int8", kv_placement="host")
    tokens, stats = serve(config)
    assert tokens == expected
    assert stats.host_attention_tokens > 0 == stats.device_attention_tokens
    assert any(note.startswith("KV on the host: int8 in groups of") for note in stats.notes)
    assert "int8 KV on the host" in stats.dtype


def test_paced_engines_refuse_it() -> None:
    spec = read_model_spec(resolve_model("demo"))
    for field, flag in (
        ("quantization", "--quantization"),
        ("kv_cache_dtype", "--kv-cache-dtype"),
        ("cpu_kv_dtype", "--cpu-kv-dtype"),
    ):
        config = replace(EngineConfig("demo"), **{field: "int4"})
        with pytest.raises(ConfigError, match=f"^{flag} int4 cannot be paced"):
            build_paced_core(config, spec, load_hardware("small"))

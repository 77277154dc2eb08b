"""The demo model in blocks of batches, as `tandem plan --offline` and a file by hand say."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.blocks import small_plan
from tests.support.command_line import run_here
from tests.support.script import run_all

import tandem
from tandem.cli.main import main
from tandem.compose import build_engine
from tandem.engine.clients.driver import Core
from tandem.engine.sizing.plan_options import engine_config
from tandem.kernels import native
from tandem.models.config import read_model_spec
from tandem.plan.offline import OfflinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel, read_plan
from tandem.plan.weights import Home, as_runs
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import PAIRS
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

DEMO = str(Path(tandem.__file__).parent / "assets" / "demo-model")
EMULATED = "emulated:exact,seed=5"
INT8 = "int8:64 and float32 weights, float32 activations and KV"
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
HOMES: tuple[Home, ...] = ("streamed", "streamed", "resident", "streamed", "streamed", "resident")
PLAN = small_plan(
    HOMES, resident_rows=1, streamed_rows=1, cpu_rows=1, recomputed_tokens=32, max_model_len=150
)


def tokens_of(core: Core) -> list[list[int]]:
    prompts = [tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 18 * i)) for i in range(7)]
    try:
        results = run_all(core, [EngineRequest(str(i), p, GREEDY) for i, p in enumerate(prompts)])
        return [results[str(i)].token_ids for i in range(len(prompts))]
    finally:
        core.close()


def saved(path: Path, plan: OfflinePlan, **changes: Any) -> Path:
    """A plan in a file, for the demo model in float32."""
    given: dict[str, Any] = {
        "model_name": "demo",
        "model": PlannedModel.of(read_model_spec(Path(DEMO))),
        "hardware": "any machine",
        "host_only": False,
        "dtype": "float32",
        "kv_cache_dtype": "float32",
        "cpu_kv_dtype": "auto",
        "quantization": "none",
        "precision": "float32",
    }
    path.write_text(PlanFile(plan=plan, **(given | changes)).to_json(), "utf-8")
    return path


def options(path: Path, **more: str) -> dict[str, Any]:
    memory = {"gpu_memory": "64MiB", "cpu_memory": "64MiB"}
    return {"model": DEMO, "plan": str(path), "accelerator": EMULATED} | memory | more


def build(path: Path, **more: str) -> Core:
    return build_engine(engine_config(options(path, **more)))


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return tokens_of(build_engine(EngineConfig(DEMO, accelerator="none", dtype="float32")))


def test_a_file_survives_json(tmp_path: Path) -> None:
    path = saved(tmp_path / "p.json", PLAN)
    planned = read_plan(path)
    assert (planned.plan, planned.is_for_blocks) == (PLAN, True)
    with pytest.raises(ConfigError, match="blocks of a batch job"):
        _ = planned.online


def test_a_file_is_executed(tmp_path: Path, expected: list[list[int]]) -> None:
    core = build(saved(tmp_path / "p.json", PLAN))
    stats = core.stats()
    assert stats.strategy == "blocks"
    assert (stats.max_model_len, stats.tiers[0].total_blocks) == (150, 20)
    assert "blocks of 2 x 3 requests, 2 layers resident, 4 layers streamed" in stats.notes[0]
    measured = {(row.location, row.label): row.actual_bytes for row in stats.memory}
    for place in (("device", "weights"), ("device", "kv slots"), ("host", "activations")):
        assert measured[place]
    for row in stats.memory:
        if row.label in ("weights", "kv pool", "kv slots", "slot table", "activations"):
            assert row.actual_bytes == row.predicted_bytes, row
    assert tokens_of(core) == expected
    # what activations took was foreseen
    foreseen = {row.label: row.predicted_bytes for row in core.stats().memory}
    assert core.stats().memory_totals[0].peak_bytes <= sum(
        row.predicted_bytes for row in stats.memory if row.location == "device"
    )
    assert foreseen["workspace"] > 0


@pytest.mark.parametrize(
    ("home", "computed", "what"),
    [
        ("host-mlp", {"cpu_mlps": (3, 4)}, "2 MLPs"),
        ("host", {"cpu_layers": (3, 4), "recomputed_tokens": 0}, "2 layers"),
        ("host-mlp", {"cpu_columns": 50}, "50 columns of every MLP that is streamed"),
        ("streamed", {"cpu_columns": 50, "prompts_on_host": True}, "50 columns"),
    ],
)
def test_what_the_cpu_computes_is_where_the_plan_has_it(
    home: Home, computed: dict[str, Any], what: str, tmp_path: Path, expected: list[list[int]]
) -> None:
    homes: tuple[Home, ...] = (home, home, "resident", home, home, "resident")
    plan = replace(PLAN, weights=as_runs(homes), **computed)
    core = build(saved(tmp_path / "p.json", plan))
    stats = core.stats()
    assert f"4 layers {home}" in stats.notes[0]
    assert f"; in passes the CPU computes {what}" in stats.notes[0]
    rows = {(row.location, row.label): row for row in stats.memory}
    for place in (("device", "weights"), ("host", "weights")):
        assert rows[place].actual_bytes == rows[place].predicted_bytes > 0, place
    assert tokens_of(core) == expected
    foreseen = sum(row.predicted_bytes for row in stats.memory if row.location == "device")
    assert core.stats().memory_totals[0].peak_bytes <= foreseen


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_an_engine_says_that_it_has_not_so_many_threads(tmp_path: Path) -> None:
    core = build(saved(tmp_path / "p.json", replace(PLAN, threads=1 << 16)))
    try:
        assert any("not on the 65536 of the plan" in note for note in core.stats().notes)
    finally:
        core.close()


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
@pytest.mark.parametrize("io", ["direct", "cached"])
def test_layers_from_disk_are_those_of_the_checkpoint(
    io: str, tmp_path: Path, expected: list[list[int]]
) -> None:
    read: Home = "disk_streamed"
    plan = replace(PLAN, weights=as_runs((read, "streamed", "resident", read, read, read)))
    core = build(saved(tmp_path / "p.json", plan), disk_io=io)
    stats = core.stats()
    assert "4 layers disk_streamed, 1 layers resident, 1 layers streamed" in stats.notes[0]
    rows = {(row.location, row.label): row for row in stats.memory}
    for place in (("disk", "weights"), ("host", "weights"), ("host", "weight slots")):
        assert rows[place].actual_bytes == rows[place].predicted_bytes > 0, place
    assert rows["disk", "weights"].actual_bytes == 4 * (rows["host", "weights"].actual_bytes or 0)
    assert tokens_of(core) == expected


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_few_bits_of_layers_from_disk_come_from_a_spool(tmp_path: Path) -> None:
    made: list[list[list[int]]] = []
    for home in ("streamed", "disk_streamed"):
        homes: tuple[Home, ...] = (home, home, "resident", home, home, "resident")
        given = replace(
            PLAN, weights=as_runs(homes), quantized_layers="streamed", quantization="int8"
        )
        path = saved(tmp_path / "p.json", given, quantization="int8", precision=INT8)
        made.append(tokens_of(build(path, spool_dir=str(tmp_path))))
    assert made[0] == made[1]


def test_weights_in_few_bits_are_those_of_an_engine_that_is_told_so(tmp_path: Path) -> None:
    config = EngineConfig(DEMO, accelerator="none", dtype="float32", quantization="int8")
    reference = tokens_of(build_engine(config))
    plan = replace(PLAN, quantized_layers="all", quantization="int8")
    path = saved(
        tmp_path / "p.json", plan, quantization="int8", precision="int8 and float32 weights"
    )
    with pytest.raises(ConfigError, match="it is for int8 and float32 weights, and this") as error:
        build(path)
    precision = error.value.message.split("would hold ")[1].split("; plan")[0]
    assert (
        tokens_of(build(saved(path, plan, quantization="int8", precision=precision))) == reference
    )


def test_streamed_layers_alone_may_be_in_few_bits(tmp_path: Path) -> None:
    weights: dict[str, dict[str, int]] = {}
    for layers in ("streamed", "all"):
        plan = replace(PLAN, quantized_layers=layers, quantization="int8")
        core = build(saved(tmp_path / f"{layers}.json", plan, quantization="int8", precision=INT8))
        stats = core.stats()
        assert ("only streamed layers in few bits" in stats.notes[0]) == (layers == "streamed")
        for row in stats.memory:
            if row.label == "weights":
                assert row.actual_bytes == row.predicted_bytes, row
                weights.setdefault(row.location, {})[layers] = row.predicted_bytes
        assert all(len(tokens) == GREEDY.max_tokens for tokens in tokens_of(core))
    assert weights["host"]["streamed"] == weights["host"]["all"]
    assert weights["device"]["streamed"] > weights["device"]["all"]


@pytest.mark.parametrize("kv", ["int8", "int4"])
def test_kv_in_few_bits_on_the_host_is_that_of_an_engine_that_is_told_so(
    kv: str, tmp_path: Path
) -> None:
    config = EngineConfig(DEMO, accelerator="none", dtype="float32", kv_cache_dtype=kv)
    reference = tokens_of(build_engine(config))
    plan = small_plan(HOMES, streamed_rows=2, cpu_rows=1, max_model_len=150, host_kv_dtype=kv)
    precision = f"float32, {kv} KV on the host"
    core = build(saved(tmp_path / "p.json", plan, cpu_kv_dtype=kv, precision=precision))
    stats = core.stats()
    assert any(f"KV on the host: {kv}" in note for note in stats.notes)
    sizes = {tier.tier: tier.block_bytes for tier in stats.tiers}
    assert sizes["host"] < sizes["device"] / 3  # which holds float32
    for row in stats.memory:
        if row.label in ("kv pool", "kv slots"):
            assert row.actual_bytes == row.predicted_bytes, row
    assert tokens_of(core) == reference


def test_kv_in_few_bits_on_the_accelerator_is_that_of_an_engine_that_is_told_so(
    tmp_path: Path,
) -> None:
    config = EngineConfig(DEMO, accelerator="none", dtype="float32", kv_cache_dtype="int8")
    reference = tokens_of(build_engine(config))
    homes = {"resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "max_model_len": 150}
    plan = small_plan(HOMES, **homes, kv_dtype="int8", host_kv_dtype="int8")
    types = {"kv_cache_dtype": "int8", "precision": "float32 weights, float32 activations, int8 KV"}
    core = build(saved(tmp_path / "p.json", plan, **types))
    stats = core.stats()
    sizes = {tier.tier: tier.block_bytes for tier in stats.tiers}
    assert sizes["host"] == sizes["device"]
    for row in stats.memory:
        if row.label in ("kv pool", "kv slots"):
            assert row.actual_bytes == row.predicted_bytes, row
    assert tokens_of(core) == reference


@pytest.mark.parametrize(
    ("plan", "file", "option", "message"),
    [
        ({"weights": PLAN.weights[:1]}, {}, {}, "layers are placed, of a model with 6"),
        ({}, {"precision": "float16"}, {}, "it is for float16, and this engine would hold float32"),
        (
            {},
            {},
            {"accelerator": "none", "gpu_memory": "auto"},
            "it is for an accelerator beside its host",
        ),
        ({}, {}, {"gpu_memory": "8MiB"}, "of device memory, and 8.0 MiB may be used here"),
        ({}, {}, {"cpu_memory": "8MiB"}, "of host memory, and 8.0 MiB may be used here"),
        ({}, {}, {"block_size": 32}, "--block-size 32 contradicts --plan"),
        ({"host_kv_dtype": "int8"}, {}, {}, "KV on the host is in int8, or in float32"),
    ],
)
def test_what_cannot_be_executed_is_refused_in_one_line(
    plan: dict[str, Any],
    file: dict[str, Any],
    option: dict[str, Any],
    message: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError) as error:
        build(saved(tmp_path / "p.json", replace(PLAN, **plan), **file), **option)
    assert message in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_what_host_memory_does_not_hold_is_planned_for_from_disk_and_runs(
    tmp_path: Path, expected: list[list[int]]
) -> None:
    path = tmp_path / "plan.json"
    asked = ("--prompt", "117", "--generate", "12", "--requests", "7", "--dtype", "float32")
    machine = ("--accelerator", str(PAIRS / "a10g-scaled.toml"), "--gpu-memory", "78MiB")
    sizes = ("--cpu-memory", "12MiB", "--disk", "1GB/s", "--max-num-batched-tokens", "128")
    assert main(["plan", DEMO, *machine, *sizes, *asked, "--offline", "--output", str(path)]) == 0
    read = read_plan(path).blocks.shape.weights.on_disk
    assert read
    core = build(path, gpu_memory="78MiB", cpu_memory="12MiB")
    rows = {(row.location, row.label): row.actual_bytes for row in core.stats().memory}
    assert rows["disk", "weights"]
    assert tokens_of(core) == expected


def test_a_plan_for_another_model_is_refused(tmp_path: Path) -> None:
    other = replace(PlannedModel.of(read_model_spec(Path(DEMO))), hidden_size=8)
    with pytest.raises(ConfigError, match=r"for another model, demo \(hidden_size 8 instead of"):
        build(saved(tmp_path / "p.json", PLAN, model=other))


def test_a_batch_runs_as_planned_and_is_resumed(tmp_path: Path) -> None:
    path, lines = tmp_path / "plan.json", tmp_path / "in.jsonl"
    asked = ("--prompt", "20-60", "--generate", "16", "--requests", "6", "--dtype", "float32")
    machine = ("--accelerator", str(PAIRS / "a10g-scaled.toml"), "--gpu-memory", "84MiB")
    sizes = ("--cpu-memory", "200MiB", "--max-num-batched-tokens", "256")
    command = ("plan", DEMO, *machine, *sizes, *asked, "--offline", "--output", str(path))
    assert main([*command]) == 0
    bodies = [
        {"prompt": "The purpose of this function is " + "to be " * i, "max_tokens": 3 + i}
        for i in range(5)
    ] + [{"prompt": "Once", "max_tokens": 4000}]
    with lines.open("w", encoding="utf-8") as file:
        for i, body in enumerate(bodies):
            line = {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": body}
            line["body"] = body | {"temperature": 0}
            file.write(json.dumps(line) + "\n")

    def texts(output: Path, *flags: str) -> dict[str, Any]:
        ran = run_here("batch", DEMO, "-i", str(lines), "-o", str(output), *flags)
        assert ran.returncode == 3, ran.stderr  # a line is too long
        results = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
        assert len(results) == len(bodies)
        return {result["custom_id"]: result["response"]["body"] for result in results}

    flags = ("--plan", str(path), "--accelerator", EMULATED)
    made = texts(tmp_path / "out.jsonl", *flags)
    plain = texts(tmp_path / "ref.jsonl", "--accelerator", "none", "--dtype", "float32")
    for i in range(5):
        assert made[str(i)]["choices"] == plain[str(i)]["choices"]
    assert "the plan is for requests of at most" in made["5"]["error"]["message"]
    again = run_here("batch", DEMO, "-i", str(lines), "-o", str(tmp_path / "out.jsonl"), *flags)
    assert again.returncode == 3
    assert "nothing to do" in again.stderr

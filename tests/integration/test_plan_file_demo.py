"""The demo model as a plan's file says, on the host alone and beside an accelerator."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.command_line import run_here
from tests.support.plans import saved
from tests.support.script import run_all

import tandem
from tandem.cli.main import main
from tandem.engine.building.core_of import core_of
from tandem.engine.building.parts import build_parts
from tandem.engine.sizing.plan_options import engine_config
from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile, read_plan
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home, as_runs
from tandem.spec.config import EngineConfig
from tandem.spec.hardware_file import PAIRS
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

DEMO = str(Path(tandem.__file__).parent / "assets" / "demo-model")
EMULATED = "emulated:exact,seed=5"
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)
ALONE = ("--accelerator", "none", "--host", "desktop-ddr5")
STREAMED = (
    "--accelerator", str(PAIRS / "a10g-scaled.toml"), "--gpu-memory", "84MiB",
    "--cpu-memory", "200MiB",
)  # fmt: skip

READ = (
    "--accelerator", str(PAIRS / "a10g-scaled.toml"), "--gpu-memory", "79MiB",
    "--cpu-memory", "14MiB", "--disk", "2GB/s", "--policy", "gpu-only",
)  # fmt: skip

READ_ON_CPU = (*READ[:5], "13MiB", *READ[6:-1], "n-gpu-layers")


def planned(path: Path, *flags: str) -> PlanFile:
    """What `tandem plan` writes for a few requests of the demo model."""
    asked = ("--prompt", "100-160", "--generate", "12", "--requests", "40")
    sizes = ("--max-num-batched-tokens", "256", "--dtype", "float32", "--output", str(path))
    assert main(["plan", DEMO, *asked, *flags, *sizes]) == 0
    return read_plan(path)


def serve(config: EngineConfig) -> tuple[list[list[int]], OnlinePlan]:
    """Greedy tokens, and the plan that the engine was built by."""
    prompts = [tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 40 * i)) for i in range(4)]
    parts = build_parts(config)
    core = core_of(parts, check=True)
    try:
        results = run_all(core, [EngineRequest(str(i), p, GREEDY) for i, p in enumerate(prompts)])
    finally:
        core.close()
    return [results[str(i)].token_ids for i in range(4)], parts.memory.plan


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return serve(EngineConfig(DEMO, accelerator="none", dtype="float32"))[0]


@pytest.mark.parametrize(
    ("flags", "accelerator", "homes"),
    [
        (ALONE, "none", {"resident"}),
        (STREAMED, EMULATED, {"host-mlp"}),
        ((*STREAMED, "--policy", "zero-inference"), EMULATED, {"streamed"}),
        ((*ALONE, "--cpu-memory", "24MiB"), "none", {"disk"}),
        (READ, EMULATED, {"streamed", "disk_streamed"}),
        (READ_ON_CPU, EMULATED, {"resident", "disk-cpu"}),
    ],
    ids=[
        "alone",
        "MLPs streamed",
        "streamed",
        "alone, from disk",
        "streamed, from disk",
        "from disk for the CPU",
    ],
)
def test_what_the_planner_wrote_is_executed(
    flags: Sequence[str],
    accelerator: str,
    homes: set[Home],
    tmp_path: Path,
    expected: list[list[int]],
) -> None:
    path = tmp_path / "plan.json"
    file = planned(path, *flags)
    assert {run.home for run in file.plan.weights} == homes
    options = {"model": DEMO, "plan": path, "accelerator": accelerator, "spool_dir": str(tmp_path)}
    config = engine_config(options)
    tokens, built = serve(config)
    assert tokens == expected
    assert replace(built, notes=()) == file.plan
    assert any(note.startswith(f"as planned in {path} for {DEMO} on ") for note in built.notes)


HOMES: dict[str, tuple[Home, ...]] = {
    "cpu": ("resident", "cpu", "cpu", "resident", "cpu", "resident"),
    "mlp": ("cpu-mlp", "cpu-mlp", "cpu-mlp", "resident", "resident", "resident"),
    "host": ("host", "host", "host", "host", "resident", "resident"),
    "host-mlp": ("host-mlp", "resident", "host-mlp", "host-mlp", "host-mlp", "resident"),
    "disk": ("disk_streamed", "disk_streamed", "streamed", "streamed", "resident", "resident"),
}


@pytest.mark.parametrize("name", HOMES)
def test_all_homes_are_as_in_the_file(name: str, tmp_path: Path, expected: list[list[int]]) -> None:
    """Those too that `tandem plan` does not weigh yet."""
    options: dict[str, Any] = {
        "model": DEMO,
        "accelerator": EMULATED,
        "gpu_memory": "64MiB",
        "cpu_memory": "64MiB",
        "spool_dir": str(tmp_path),
    }
    parts = build_parts(
        EngineConfig(
            **options, dtype="float32", max_model_len=200, max_num_seqs=3, kv_placement="split"
        )
    )
    parts.assembled.machine.free()
    lent = {"host": (2, 3), "host-mlp": (3, 4)}.get(name)
    rules = (CpuRule(1, lent),) if lent else ()
    plan = replace(
        parts.memory.plan,
        weights=as_runs(HOMES[name]),
        cpu_rules=rules,
        device_blocks=9,
        host_blocks=9,
        notes=(),
    )
    path = saved(tmp_path / "p.json", plan, parts.spec, parts.precision, host_only=False)
    tokens, built = serve(engine_config({**options, "plan": path}))
    assert tokens == expected
    assert replace(built, notes=()) == plan


def test_commands_and_the_api_take_it(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    file = planned(path, *ALONE)
    prompt = "The purpose of this function is"
    said = ("--prompt", prompt, "--max-tokens", "8", "--json")
    ran = run_here("generate", DEMO, "--plan", str(path), *said)
    assert ran.returncode == 0, ran.stderr
    stats = json.loads(ran.stdout)["stats"]
    assert stats["max_model_len"] == file.plan.max_model_len
    assert [tier["total_blocks"] for tier in stats["tiers"] if tier["total_blocks"]] == [
        file.online.device_blocks
    ]
    noted = run_here("generate", DEMO, "--plan", str(path), *said[:4]).stderr
    assert f"note: as planned in {path}" in noted
    params = tandem.SamplingParams(max_tokens=8, temperature=0.0)
    with tandem.LLM(DEMO, plan=path) as llm:
        sample = llm.generate(prompt, params)[0].outputs[0]
    assert sample.token_ids == tuple(json.loads(ran.stdout)["outputs"][0]["token_ids"])
    refused = run_here("generate", DEMO, "--plan", str(path), "--block-size", "32", *said)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert f"--block-size 32 contradicts --plan {path}, which says 64" in refused.stderr

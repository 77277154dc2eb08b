"""A mixture as the planner divides it between accelerator and CPU, planned and executed."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.four_requests import serve
from tests.support.small_mixture import check_hits, check_weights, small_mixture

from tandem.cli.main import main
from tandem.engine.sizing.plan_options import engine_config
from tandem.plan.plan_file import read_plan
from tandem.plan.weights import Home, homes_by_layer, resident_experts
from tandem.spec.hardware_file import PAIRS

EMULATED = "emulated:exact,seed=5"
ASKED = (
    "--prompt", "129", "--generate", "12", "--requests", "4", "--max-num-batched-tokens", "64",
    "--dtype", "float32", "--accelerator", str(PAIRS / "a10g-scaled.toml"),
    "--cpu-memory", "100MiB",
)  # fmt: skip


@pytest.mark.parametrize(("memory", "home"), [("71006KiB", "cpu-mlp"), ("74656KiB", "host-mlp")])
def test_tokens_are_those_of_the_host_alone(memory: str, home: Home, tmp_path: Path) -> None:
    config = small_mixture(tmp_path)
    expected, _ = serve(config)
    path = tmp_path / "plan.json"
    asked = (*ASKED, "--gpu-memory", memory, "--output", str(path))
    assert main(["plan", config.model, *asked]) == 0
    plan = read_plan(path).online
    experts = resident_experts(plan.weights)
    assert set(experts) == {1, 2, 4, 5}
    homes = homes_by_layer(plan.weights)
    assert {homes[layer] for layer in experts} == {home}
    options = {"model": config.model, "plan": path, "accelerator": EMULATED}
    tokens, stats = serve(replace(engine_config(options), load_format="dummy"))
    assert tokens == expected
    check_hits(stats)
    check_weights(stats, "device", "host")

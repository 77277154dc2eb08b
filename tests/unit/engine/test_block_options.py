"""Beside a plan for blocks of batches every option does something, is the plan's, or is refused."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from tests.support.blocks import small_plan
from tests.support.plans import plan_of

from tandem.engine.sizing.block_options import MEANINGLESS, refuse_beside_blocks
from tandem.engine.sizing.plan_options import engine_config
from tandem.plan.plan_file import PlanFile
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError

MEANT = {
    "model", "accelerator", "gpu_memory", "cpu_memory", "gpu_margin", "plan", "disk_io",
    "spool_dir", "disk_copies", "seed", "load_format", "max_num_queued_reqs",
    "tensor_parallel_size", "trace", "trace_limit", "pinned_memory",
}  # fmt: skip
PLACED = {"placement", "host_layers", "expert_hits"}
"""Refused beside every plan."""
REFUSED: dict[str, Any] = {
    "save_expert_hits": "hits.json",
    "strategy": "neo",
    "kv_placement": "host",
    "max_host_seqs": 3,
    "interposition_budget": 2,
    "tpot_bound": "100ms",
    "ttft_bound": "2s",
    "preemption_mode": "swap",
    "enable_prefix_caching": True,
    "host_prefix_share": 0.5,
    "kv_disk": "kv",
    "kv_disk_size": "1GiB",
    "calibrate": True,
    "overlap": False,
    "cuda_graphs": "on",
    "link_copies": "batched",
    "link_waits": "stream",
    "attention_backend": "triton",
}
AGREEING: dict[str, Any] = {
    "strategy": "auto",
    "kv_placement": "auto",
    "max_host_seqs": 0,
    "interposition_budget": None,
    "preemption_mode": "auto",
    "enable_prefix_caching": False,
    "host_prefix_share": 0,
    "calibrate": False,
    "overlap": True,
    "cuda_graphs": "off",
}


def planned() -> PlanFile:
    one = plan_of(1)
    return PlanFile(
        model_name="any",
        model=one.model,
        hardware="any",
        host_only=False,
        dtype="float32",
        kv_cache_dtype="float32",
        cpu_kv_dtype="auto",
        quantization="none",
        precision="float32",
        plan=small_plan(("streamed",), resident_rows=1),
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "plan.json"
    file.write_text(planned().to_json(), "utf-8")
    return str(file)


def test_every_option_is_decided_on() -> None:
    kinds = [MEANT, PLACED, set(planned().settings), set(MEANINGLESS)]
    known = [field.name for field in fields(EngineConfig)]
    assert sorted(name for kind in kinds for name in kind) == sorted(known)
    assert REFUSED.keys() == MEANINGLESS.keys()


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_do_nothing_is_refused_by_name(name: str, path: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "-")) as error:
        engine_config({"model": "any", "plan": path, name: REFUSED[name]})
    assert error.value.param == name
    assert error.value.message.startswith("--")
    assert "; leave it out" in error.value.message
    assert "\n" not in error.value.message


@pytest.mark.parametrize("name", sorted(REFUSED.keys() - {"enable_prefix_caching"}))
def test_in_a_configuration_by_hand_too(name: str) -> None:
    with pytest.raises(ConfigError, match=r"has no meaning with --plan p\.json, whose") as error:
        refuse_beside_blocks(EngineConfig("any", plan="p.json", **{name: REFUSED[name]}))
    assert error.value.param == name


def test_defaults_and_what_blocks_do_anyway_are_taken(path: str) -> None:
    refuse_beside_blocks(EngineConfig("any", plan="p.json"))
    assert engine_config({"model": "any", "plan": path, **AGREEING}).cuda_graphs == "off"


def test_flags_are_named_as_they_were_given(path: str) -> None:
    for name, flag in (("overlap", "--no-overlap "), ("enable_prefix_caching", "--enable-prefix")):
        with pytest.raises(ConfigError) as error:
            engine_config({"model": "any", "plan": path, name: REFUSED[name]})
        assert error.value.message.startswith(flag)

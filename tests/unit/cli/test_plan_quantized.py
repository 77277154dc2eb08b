"""Plans of weights in few bits."""

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Commands

from tandem.models.catalogue import CATALOGUE

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
PACKED = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
        }
    },
}  # fmt: skip
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def test_weights_in_few_bits_are_planned_for_if_asked(commands: Commands) -> None:
    # resident, although the CPU would be faster than what the accelerator takes to dequantize
    asked = ("plan", "llama-3.1-8b", "--accelerator", "a10g", "--requests", "4")
    asked += ("--policy", "gpu-only")
    plain, small = (commands.run(*asked, *more) for more in ((), ("--quantization", "int4:64")))
    assert (small.status, small.err) == (0, "")
    assert "int4:64 and bfloat16 weights" in small.out
    assert "note: weights in few bits change what the model says" in small.out
    assert "--quantization int4:64" in small.out.partition("tandem serve")[2]
    assert "--quantization" not in plain.out
    sizes = [
        json.loads(commands.run(*asked, *more, "--json").out)["memory"]["accelerator"]
        for more in ((), ("--quantization", "int8"))
    ]
    # embeddings and head of 2.1 GB stay as they are, the layers' 14 GB take half and a bit
    saved = sizes[0]["weights_bytes"] - sizes[1]["weights_bytes"]
    assert saved == pytest.approx(0.488 * 13.96e9, rel=0.02)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("int3", "cannot plan for quantization 'int3'; use none, int8 or int4"),
        ("int4:", "cannot plan for quantization 'int4:'"),
        ("w8a8", "cannot plan for quantization 'w8a8'"),
        ("int4:48", "groups of 48 are not supported"),
    ],
)
def test_other_quantizations_are_refused_in_one_line(
    commands: Commands, wanted: str, message: str
) -> None:
    ran = commands.run("plan", "opt-30b", "--accelerator", "a4000", "--quantization", wanted)
    assert (ran.status, ran.out) == (2, "")
    assert message in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("quantization", "precision", "share"),
    [
        (GPTQ, "int4:128 and bfloat16 weights", 0.28),
        (PACKED, "int8:", 0.52),
        (FP8, "fp8:128 and bfloat16 weights", 0.52),
    ],
    ids=["gptq", "compressed-tensors", "fp8"],
)
def test_a_quantized_checkpoint_is_planned_for_as_it_is(
    commands: Commands,
    tmp_path: Path,
    quantization: dict[str, object],
    precision: str,
    share: float,
) -> None:
    family = json.loads((CATALOGUE / "qwen3.json").read_text("utf-8"))
    config = {**family["shared"], **family["models"]["qwen3-8b"]["config"]}
    text = json.dumps({**config, "quantization_config": quantization})
    (tmp_path / "config.json").write_text(text, "utf-8")
    asked = ("plan", str(tmp_path), "--accelerator", "a10g", "--objective", "latency")
    asked += ("--policy", "gpu-only")
    ran = commands.run(*asked)
    assert (ran.status, ran.err) == (0, "")
    assert precision in ran.out
    sizes = [
        json.loads(commands.run(*asked, *more, "--json").out)["memory"]["accelerator"]
        for more in ((), ("--quantization", "none"))
    ]
    maps = 6.95e9 * 2  # of the layers; embeddings and head stay as they are
    saved = sizes[1]["weights_bytes"] - sizes[0]["weights_bytes"]
    assert saved == pytest.approx((1 - share) * maps, rel=0.03)
    refused = commands.run(*asked, "--quantization", "int8")
    assert refused.status == (0 if quantization is FP8 else 2)


def write_fp8(folder: Path) -> None:
    """Qwen3-8B's configuration, in FP8."""
    family = json.loads((CATALOGUE / "qwen3.json").read_text("utf-8"))
    config = {**family["shared"], **family["models"]["qwen3-8b"]["config"]}
    text = json.dumps({**config, "quantization_config": FP8})
    (folder / "config.json").write_text(text, "utf-8")


def test_the_cpu_computes_no_layer_in_fp8(commands: Commands, tmp_path: Path) -> None:
    """Its kernels do not read it: what has no room is streamed, whatever the policy."""
    write_fp8(tmp_path)
    asked = ("plan", str(tmp_path), "--accelerator", "a10g", "--gpu-memory", "6GiB")
    asked += ("--requests", "8", "--prompt", "64", "--generate", "32")
    ran = commands.run(*asked, "--compare-policies")
    assert (ran.status, ran.err) == (0, "")
    assert "note: the checkpoint's FP8 stays in a byte" in ran.out
    assert "layers streamed" in ran.out.partition("Best:")[2].splitlines()[0]
    file = tmp_path / "plan.json"
    for more, on_cpu in (((), False), (("--quantization", "none"), True)):
        written = commands.run(*asked, *more, "--output", str(file))
        assert (written.status, written.err) == (0, "")
        planned = json.loads(file.read_text("utf-8"))
        homes = {run["home"] for run in planned["plan"]["weights"]}
        assert (bool(homes & {"cpu", "cpu-mlp"}) or bool(planned["plan"]["cpu_rules"])) == on_cpu
        assert ("fp8:128" in planned["precision"]) != on_cpu


def test_blocks_and_hosts_hold_fp8_wider(commands: Commands, tmp_path: Path) -> None:
    write_fp8(tmp_path)
    for machine in (
        ("--accelerator", "a10g", "--offline"),
        ("--accelerator", "none", "--host", "g5.4xlarge"),
    ):
        ran = commands.run("plan", str(tmp_path), *machine, "--requests", "8", "--json")
        assert (ran.status, ran.err) == (0, "")
        assert "fp8" not in json.loads(ran.out)["precision"]

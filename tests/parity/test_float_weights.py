"""Weights in floats of a byte (e4m3) that stay so: every number, and tokens of transformers."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODES
from tests.parity.published_checkpoint import change, write
from tests.parity.published_formats import Published, fp8
from tests.parity.quantized_weights import CASE, MIXTURE
from tests.parity.tiny_models import Case
from tests.support.engines import model_engine
from tests.support.fake_cuda import install
from tests.support.plans import saved
from tests.support.setups import streamed as stream
from tests.support.setups import sweep_choice

from tandem.engine.building.build import build_engine_core
from tandem.engine.sizing.plan_options import engine_config
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_parameters
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.models.quantized_checkpoint import stored_formats
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import WeightPlacement
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision

IN_TORCH = next(mode for mode in MODES if mode.id == "in-torch")
KINDS = (fp8("tensor"), fp8("channel"), fp8("block", (48, 64)))


def load(directory: Path, homes: tuple[int, ...] = ()) -> Model:
    formats = stored_formats(directory, read_model_spec(directory), floats=True)
    wide = DType.FLOAT32
    precision = Precision(wide, wide, wide, quantized=formats)
    return load_model(directory, precision, layers=sweep_choice(stream(*homes) if homes else ()))


@pytest.mark.parametrize("published", KINDS, ids=lambda p: p.id)
@pytest.mark.parametrize("case", [CASE, MIXTURE], ids=lambda c: c.id)
def test_numbers_are_the_checkpoint_s(case: Case, published: Published, tmp_path: Path) -> None:
    written = write(tmp_path, published, case=case)
    model = load(tmp_path)
    parameters = checkpoint_parameters(model.weights, load_architecture(model.spec.architecture))
    for name, meaning in written.weights.items():
        kept = parameters[f"{name}.weight"].quantized
        assert kept is not None, name
        assert kept.format.floats
        assert torch.equal(kept.dequantize(), meaning), name
        assert kept.size_bytes <= meaning.numel() * (1 + 4 / 32)


@pytest.mark.parametrize("published", KINDS, ids=lambda p: p.id)
@pytest.mark.parametrize("homes", [(), (0, 2)], ids=["resident", "streamed"])
def test_greedy_tokens_are_those_of_transformers(
    published: Published, homes: tuple[int, ...], tmp_path: Path, ties: TieCount
) -> None:
    reference = Reference(write(tmp_path, published).reference)
    model = load(tmp_path, homes)
    prompts = PROMPTS[1:3]
    with model_engine(model, IN_TORCH.setup) as engine:
        made = generate(engine.core, prompts, 16)
    for prompt, tokens in zip(prompts, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)
    model.weights.close()


@pytest.mark.parametrize("part", ["q_proj", "up_proj", "down_proj"])
def test_maps_that_differ_among_layers_become_wider(part: str, tmp_path: Path) -> None:
    """And those that lie in one tensor with them."""
    written = write(tmp_path, fp8("tensor"))
    name = next(name for name in written.weights if name.endswith(part) and ".1." in name)
    plain = written.weights[name]
    change(tmp_path, {f"{name}.weight": plain, f"{name}.weight_scale": None})
    formats = stored_formats(tmp_path, read_model_spec(tmp_path), floats=True)
    together = {"q_proj": {"q", "k", "v"}, "up_proj": {"gate", "up"}, "down_proj": {"down"}}[part]
    assert formats.keys() == {"q", "k", "v", "output", "gate", "up", "down"} - together
    load(tmp_path)


def test_blocks_that_no_group_divides_become_wider(tmp_path: Path) -> None:
    write(tmp_path, fp8("block", (48, 80)))
    assert stored_formats(tmp_path, read_model_spec(tmp_path), floats=True) == {}


def test_a_gpu_keeps_them_and_counts_their_bytes(
    tmp_path: Path, ties: TieCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch)
    reference = Reference(write(tmp_path, fp8("tensor")).reference)
    config = EngineConfig(
        str(tmp_path), accelerator="cuda", dtype="float32", strategy="gpu-only", block_size=16,
        gpu_memory="256MiB", cpu_memory="256MiB", max_num_seqs=4, max_num_batched_tokens=64,
    )  # fmt: skip
    sizes: dict[str, int] = {}
    for quantization in ("auto", "none"):
        core = build_engine_core(replace(config, quantization=quantization), check=True)
        for prompt, tokens in zip(PROMPTS[1:3], generate(core, PROMPTS[1:3], 8), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        stats = core.stats()
        core.close()
        (row,) = (r for r in stats.memory if (r.location, r.label) == ("device", "weights"))
        assert row.actual_bytes == row.predicted_bytes
        sizes[quantization] = row.predicted_bytes
        kept = any("FP8: kept as they are" in note for note in stats.notes)
        assert kept == (quantization == "auto")
    spec = read_model_spec(tmp_path)
    formats = stored_formats(tmp_path, spec, floats=True)
    wide = Precision.uniform(DType.FLOAT32)
    few = sum(layer_matrix_bytes(spec, replace(wide, quantized=formats), i) for i in range(3))
    assert sizes["none"] - sizes["auto"] == 3 * layer_matrix_bytes(spec, wide) - few
    assert few < 3 * layer_matrix_bytes(spec, wide) * 0.27


def test_a_gpu_keeps_them_under_a_plan_that_counts_them_so(
    tmp_path: Path, ties: TieCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resident and streamed; a plan for wider weights is another's."""
    install(monkeypatch)
    reference = Reference(write(tmp_path, fp8("tensor")).reference)
    spec, wide = read_model_spec(tmp_path), Precision.uniform(DType.FLOAT32)
    kept = replace(wide, quantized=stored_formats(tmp_path, spec, floats=True))
    plan = OnlinePlan(
        strategy="gpu-only",
        weights=(WeightPlacement(0, 1), WeightPlacement(2, 2, "streamed")),
        device_blocks=40,
        host_blocks=0,
        block_size=16,
        max_model_len=256,
        max_num_seqs=4,
        max_num_batched_tokens=64,
    )
    for precision in (kept, wide):
        file = saved(tmp_path / "plan.json", plan, spec, precision, host_only=False)
        given = {"model": str(tmp_path), "plan": str(file), "accelerator": "cuda"}
        config = engine_config({**given, "gpu_memory": "256MiB", "cpu_memory": "256MiB"})
        if precision is wide:
            with pytest.raises(ConfigError, match="plan anew, since plans keep FP8 as it is"):
                build_engine_core(config, check=True)
            return
        core = build_engine_core(config, check=True)
        for prompt, tokens in zip(PROMPTS[1:3], generate(core, PROMPTS[1:3], 8), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        notes = core.stats().notes
        core.close()
        assert any("FP8: kept as they are" in note for note in notes)

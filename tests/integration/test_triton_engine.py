"""Triton's kernels inside an engine: its CUDA path over a stand-in, the kernels interpreted."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.gpu.test_engine_on_cuda import _MIXTURE, _MODEL
from tests.support import interpreted_asm
from tests.support.fake_cuda import install
from tests.support.script import run_all
from tests.support.waiting import waits_noted
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import DEVICE, WITH_DOT, WITHOUT_DOT

from tandem.engine.building.build import build_engine_core
from tandem.engine.stats import EngineStats
from tandem.kernels import (
    triton_expert_products,
    triton_products,
    triton_row_operations,
    triton_support,
)
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import TierKernels
from tandem.kernels.triton_kernels import TritonKernels
from tandem.kernels.triton_support import TritonDevice
from tandem.models import expert_steps, layer_steps, rotary
from tandem.runtime import assemble_cuda, choose_kernels
from tandem.runtime.graph_maker import EmulatedGraphs
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

pytestmark = pytest.mark.slow
if DEVICE.type != "cpu":
    pytest.skip("with a GPU, the smoke tests of the GPU run", allow_module_level=True)

_SMALL = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_attention_heads": 4,
}
_LLAMA = _MODEL | _SMALL
_TINY = {  # one program of the interpreter for each row of a matrix that is dequantized
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 32,
    "moe_intermediate_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
_EXPERTS = _MIXTURE | _TINY | {"num_experts": 4, "num_experts_per_tok": 2}
_GEMMA = _LLAMA | {  # every other layer sees the last 8 tokens; scores are bounded
    "architectures": ["Gemma2ForCausalLM"],
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 32,
    "sliding_window": 8,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 30.0,
    "tie_word_embeddings": True,
}
_PROMPTS = [tuple((7 * i + 13 * j) % 500 + 5 for j in range(3 + 9 * i)) for i in range(3)]
_ALONE: dict[str, Any] = {"strategy": "gpu-only"}
_SPLIT: dict[str, Any] = {"strategy": "ride-along", "kv_placement": "split"}


class Launches:
    """What the device's kernels were asked for while an engine ran."""

    def __init__(self) -> None:
        self.attentions = self.merges = self.products = self.experts = 0
        self.rotations = self.gates = 0

    def counted(self, name: str, call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The call, each time counted under a name."""

        def made(*given: Any) -> Tensor:
            setattr(self, name, getattr(self, name) + 1)
            return call(*given)

        return made


class Again(EmulatedGraphs):
    """Does the work again: those of torch's operations that Triton's interpreter uses within a
    launch cannot be done again by themselves.
    """

    def record(self, work: Callable[[], Tensor]) -> tuple[Callable[[], None], Tensor]:
        result = work()

        def replay() -> None:
            result.copy_(work())

        return replay, result


def _with_triton(monkeypatch: pytest.MonkeyPatch, unit: TritonDevice) -> Launches:
    """Until the test ends, `--accelerator cuda` is a stand-in with interpreted kernels."""
    counted = Launches()

    class Counted(TritonKernels):
        def attend(self, *given: Any, **named: Any) -> AttentionOutput:
            counted.attentions += 1
            return super().attend(*given, **named)

        def merge(self, *given: Any, **named: Any) -> Tensor:
            counted.merges += 1
            return super().merge(*given, **named)

    def made(
        device: torch.device,
        heads: int,
        shape: PageShape,
        scale: float,
        soft_cap: float,
        dtype: torch.dtype,
    ) -> TierKernels:
        return Counted(device, heads, shape, scale, soft_cap, unit, dtype)

    install(monkeypatch)
    interpreted_asm.install(monkeypatch)
    monkeypatch.setattr(assemble_cuda, "CudaGraphs", lambda device: Again())
    monkeypatch.setattr(choose_kernels, "accelerator_kernels", made)
    monkeypatch.setattr(triton_support, "unit_of", lambda device: unit)
    for maths in (expert_steps, layer_steps, rotary):
        monkeypatch.setattr(maths, "triton_unit", lambda x: unit)
    for module, name, kind in (
        (triton_row_operations, "rotated", "rotations"),
        (triton_row_operations, "gated", "gates"),
        (triton_products, "multiply", "products"),
        (triton_expert_products, "expert_total", "experts"),
    ):
        monkeypatch.setattr(module, name, counted.counted(kind, getattr(module, name)))
    return counted


def _serve(config: EngineConfig) -> tuple[dict[str, list[int]], EngineStats]:
    """Tokens of three requests, the second sampled."""
    core = build_engine_core(config, check=True)
    try:
        requests = [
            EngineRequest(
                str(i),
                prompt,
                SamplingParams(max_tokens=4, temperature=0.7 * (i % 2), seed=i, ignore_eos=True),
            )
            for i, prompt in enumerate(_PROMPTS)
        ]
        results = run_all(core, requests)
        return {name: result.token_ids for name, result in results.items()}, core.stats()
    finally:
        core.close()


def _compare(
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Mapping[str, object] = _LLAMA,
    unit: TritonDevice = WITH_DOT,
    **changes: Any,
) -> tuple[EngineStats, Launches]:
    """The tokens must be the same; the host runs before its kernels are replaced by others."""
    (directory / "config.json").write_text(json.dumps(model))
    same = {name: changes.pop(name) for name in ("quantization",) if name in changes}
    if "kv_cache_dtype" in changes:
        same["kv_cache_dtype"] = changes.pop("kv_cache_dtype")
    sizes: dict[str, Any] = {
        "load_format": "dummy",
        "dtype": "float32",
        "cpu_memory": "64MiB",
        "max_model_len": 48,
        "max_num_seqs": 3,
        "max_num_batched_tokens": 16,
        "block_size": 16,
    }
    host = EngineConfig(str(directory), accelerator="none", **sizes, **same)
    expected, _ = _serve(host)
    counted = _with_triton(monkeypatch, unit)
    given: dict[str, Any] = {"accelerator": "cuda", "gpu_memory": "256MiB", "cuda_graphs": "off"}
    with waits_noted(monkeypatch) as waits:
        tokens, stats = _serve(EngineConfig(str(directory), **sizes, **same, **(given | changes)))
    assert tokens == expected
    assert not waits
    assert counted.attentions > 0
    assert counted.rotations > 0
    return stats, counted


def test_on_the_device_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, counted = _compare(tmp_path, monkeypatch, **_ALONE)
    assert stats.host_attention_tokens == 0
    assert counted.gates > 0


def test_as_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decodes by static tables and device-side lengths, each step padded to a bucket."""
    stats, _ = _compare(tmp_path, monkeypatch, **_ALONE, cuda_graphs="on")
    # the smaller ones only if there is time: the largest in any case
    assert [note for note in stats.notes if "3 rows, recorded" in note]


def test_keys_in_both_tiers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, counted = _compare(tmp_path, monkeypatch, **_SPLIT)
    assert stats.host_attention_tokens > 0
    assert counted.merges > 0


def test_cohorts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stats, _ = _compare(tmp_path, monkeypatch, strategy="rendezvous", kv_placement="split")
    assert stats.cohort_joins > 0


def test_before_matrix_units(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(tmp_path, monkeypatch, _LLAMA | _TINY, WITHOUT_DOT, **_ALONE)


@pytest.mark.parametrize("stored", ["int8", "int4", "fp8"])
def test_pages_of_few_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: str) -> None:
    _compare(tmp_path, monkeypatch, kv_cache_dtype=stored, **_SPLIT)


def test_windows_and_bounded_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(tmp_path, monkeypatch, _GEMMA, **_SPLIT)


@pytest.mark.parametrize("format", ["int4:32", "int8:32"])
def test_quantized_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    _, counted = _compare(tmp_path, monkeypatch, _LLAMA | _TINY, quantization=format, **_ALONE)
    assert counted.products > 0


@pytest.mark.parametrize("format", ["none", "int4:32"])
def test_experts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str) -> None:
    _, counted = _compare(tmp_path, monkeypatch, _EXPERTS, quantization=format, **_ALONE)
    assert counted.experts > 0
    assert counted.gates >= counted.experts  # an activation times the other half, in one launch

"""Attention kernels that are named: taken where they can serve, and refused with a remedy."""

import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.support.engines import tiny_model
from tests.unit.kernels import prompt_libraries

from tandem.engine.sizing import attention_choice
from tandem.engine.sizing.attention_choice import check_attention_backend, prompt_notes
from tandem.kernels import open_prompts, triton_support
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import TierKernels
from tandem.memory.page import KVPageSpec
from tandem.models.weights import torch_dtype
from tandem.runtime import choose_kernels
from tandem.spec.config import AttentionBackend
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.tier import Tier

SPEC = replace(tiny_model().spec, head_dim=64)
B16 = DType.BFLOAT16
HALF = Precision.uniform(B16)


LIBRARIES: tuple[AttentionBackend, ...] = ("flashinfer", "torch")


@pytest.fixture(autouse=True)
def with_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_choice, "reason_against", lambda: None)
    monkeypatch.setattr(open_prompts, "compute_capability", lambda device: (8, 0))


@pytest.fixture
def with_flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    library = SimpleNamespace(
        BatchPrefillWithPagedKVCacheWrapper=prompt_libraries.BatchPrefillWithPagedKVCacheWrapper,
        BatchDecodeWithPagedKVCacheWrapper=prompt_libraries.BatchDecodeWithPagedKVCacheWrapper,
    )
    monkeypatch.setitem(sys.modules, "flashinfer", library)


@pytest.fixture
def with_varlen(monkeypatch: pytest.MonkeyPatch) -> None:
    def request(*, lse: bool) -> object:
        assert lse
        return prompt_libraries.AuxRequest()

    module = SimpleNamespace(varlen_attn=prompt_libraries.varlen_attn, AuxRequest=request)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)


def check(name: AttentionBackend, spec: ModelSpec = SPEC, precision: Precision = HALF) -> None:
    check_attention_backend(name, spec, precision, torch.device("cuda"))


def refused(
    message: str, name: AttentionBackend, spec: ModelSpec = SPEC, precision: Precision = HALF
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        check(name, spec, precision)
    assert str(error.value).startswith(f"--attention-backend {name} cannot be: ")
    assert error.value.param == "attention_backend"


def test_what_can_serve_is_taken(with_flashinfer: None, with_varlen: None) -> None:
    for name in LIBRARIES:
        check(name)
    check("triton")
    for name in LIBRARIES:
        shape = PageShape(2, 16, 64)
        opened = open_prompts.open_prompts(
            name, torch.device("cpu"), 4, shape, 0.1, 0.0, torch.float16
        )
        assert opened.name


def test_cards_before_ampere(
    monkeypatch: pytest.MonkeyPatch, with_flashinfer: None, with_varlen: None
) -> None:
    monkeypatch.setattr(open_prompts, "compute_capability", lambda device: (7, 5))
    half = Precision.uniform(DType.FLOAT16)
    for name in LIBRARIES:
        refused("bfloat16 begin with compute capability 8.0, and this GPU has 7.5", name)
    refused("float16 begin with compute capability 8.0", "torch", precision=half)
    check("flashinfer", precision=half)
    check("triton")
    with pytest.raises(open_prompts.NoPromptLibraryError, match=r"this GPU has 7\.5"):
        open_prompts.open_prompts(
            "torch", torch.device("cuda"), 4, PageShape(2, 16, 64), 0.1, 0.0, torch.float16
        )


def test_without_triton_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_choice, "reason_against", lambda: "Triton is not installed")
    for name in ("triton", "flashinfer", "torch"):
        refused("Triton is not installed; or leave it out", name)


def test_types_and_heads_that_a_library_does_not_take(
    with_flashinfer: None, with_varlen: None
) -> None:
    wide, narrow = Precision.uniform(DType.FLOAT32), replace(HALF, kv=NarrowFloat.FP8)
    for name in ("flashinfer", "torch"):
        refused("multiply in 16 bits, not in torch.float32", name, precision=wide)
        refused("read KV of bfloat16 alone, not of fp8", name, precision=narrow)
    refused("heads of 64, 128, 256, not 96", "flashinfer", replace(SPEC, head_dim=96))
    check("torch", replace(SPEC, head_dim=96))
    refused("multiples of 8 up to 256, not 512", "torch", replace(SPEC, head_dim=512))
    capped = replace(SPEC, attention_soft_cap=30.0)
    refused("do not bound scores", "torch", capped)
    check("flashinfer", capped)


def test_a_library_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    refused("flashinfer cannot be imported .*; install flashinfer-python", "flashinfer")


def test_a_flashinfer_that_is_older_or_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    prefill = prompt_libraries.BatchPrefillWithPagedKVCacheWrapper

    class Older(prompt_libraries.BatchDecodeWithPagedKVCacheWrapper):
        def plan(self, indptr: object, data_type: str = "float16") -> None: ...

    class Passing(prompt_libraries.BatchDecodeWithPagedKVCacheWrapper):
        def plan(self, *args: Any, **kwargs: Any) -> None:
            super().plan(*args, **kwargs)

    def installed(**wrappers: type) -> None:
        monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(**wrappers))

    later = "install flashinfer-python 0.6 or later"
    decode = "BatchDecodeWithPagedKVCacheWrapper"
    installed()
    refused(f"flashinfer has no BatchPrefillWithPagedKVCacheWrapper.*; {later}", "flashinfer")
    installed(BatchPrefillWithPagedKVCacheWrapper=prefill)
    refused(f"flashinfer has no {decode}.*; {later}", "flashinfer")
    installed(BatchPrefillWithPagedKVCacheWrapper=prefill, **{decode: Older})
    lacks = "kv_data_type, logits_soft_cap, q_data_type, sm_scale, window_left"
    refused(f"{decode}.plan has no {lacks}; {later}", "flashinfer")
    installed(BatchPrefillWithPagedKVCacheWrapper=prefill, **{decode: Passing})
    check("flashinfer")


def test_a_torch_whose_function_is_older(monkeypatch: pytest.MonkeyPatch) -> None:
    def older(query: object, cu_seq_q: object, is_causal: bool = False) -> None: ...

    module = SimpleNamespace(varlen_attn=older)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    refused("has no return_aux, scale, window_size; it needs torch 2.11", "torch")


@pytest.mark.usefixtures("with_flashinfer")
def test_an_engine_s_kernels_are_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from tests.unit.triton.triton_case import WITH_DOT

    from tandem.kernels.triton_kernels import TritonKernels

    def triton(device: torch.device, heads: int, shape: PageShape, *rest: Any) -> TierKernels:
        scale, soft_cap, dtype = rest
        return TritonKernels(device, heads, shape, scale, soft_cap, WITH_DOT, dtype)

    monkeypatch.setattr(choose_kernels, "accelerator_kernels", triton)
    page = KVPageSpec.of_model(SPEC, dtype=DType.FLOAT16)

    def named(attention: AttentionBackend) -> str:
        made = choose_kernels.choose_kernels(
            SPEC, page, torch.device("cpu"), torch.float16, attention=attention
        )
        return made[Tier.DEVICE].name

    assert named("flashinfer") == "FlashInfer for prompts and decodes, Triton kernels for the rest"
    assert named("auto") == named("triton") == "Triton kernels"
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ConfigError, match="--attention-backend flashinfer cannot be"):
        named("flashinfer")


@pytest.fixture
def before_matrix_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of compute capability 7.5."""
    pytest.importorskip("triton", reason="Triton is not installed")
    from tests.unit.triton.triton_case import WITHOUT_DOT

    from tandem.kernels.triton_kernels import TritonKernels

    def triton(device: torch.device, heads: int, shape: PageShape, *rest: Any) -> TierKernels:
        scale, soft_cap, dtype = rest
        return TritonKernels(device, heads, shape, scale, soft_cap, WITHOUT_DOT, dtype)

    monkeypatch.setattr(choose_kernels, "accelerator_kernels", triton)
    monkeypatch.setattr(triton_support, "unit_of", lambda device: WITHOUT_DOT)


def _prompts_on_gpu(
    kv: KVType = DType.FLOAT16, dtype: DType = DType.FLOAT16, **changes: Any
) -> tuple[str, tuple[str, ...]]:
    """Names of the kernels of an engine on a GPU by default, and what its user is told."""
    spec, device = replace(SPEC, **changes), torch.device("cuda")
    page = KVPageSpec.of_model(spec, dtype=kv)
    made = choose_kernels.choose_kernels(spec, page, device, torch_dtype(dtype))
    precision = replace(Precision.uniform(dtype), kv=kv)
    return made[Tier.DEVICE].name, prompt_notes("auto", spec, precision, device)


@pytest.mark.usefixtures("before_matrix_units")
def test_before_matrix_units_prompts_are_memory_efficient_by_default() -> None:
    name = "torch's memory-efficient attention for prompts, "
    name += "Triton kernels without matrix units for the rest"
    assert _prompts_on_gpu() == (name, ())
    assert _prompts_on_gpu(DType.FLOAT32, DType.FLOAT32) == (name, ())
    own, notes = _prompts_on_gpu(windows=(0, 512))
    assert own == name  # of layers without windows
    assert "windows, which layers of this model have" in notes[0]


@pytest.mark.usefixtures("before_matrix_units")
def test_where_memory_efficient_attention_cannot_be_users_are_told() -> None:
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            "in float16 or float32, not in torch.bfloat16 (--dtype float16)",
            {"kv": B16, "dtype": B16},
        ),
        ("KV of torch.float16 alone", {"kv": CodeType.INT8}),
        ("KV of torch.float16 alone", {"kv": NarrowFloat.FP8}),
        ("do not bound scores", {"attention_soft_cap": 30.0}),
        ("heads of multiples of 8, not 100", {"head_dim": 100}),
    )
    for reason, given in cases:
        name, (note,) = _prompts_on_gpu(**given)
        assert name == "Triton kernels without matrix units"
        assert note.startswith("prompts are read on the GPU by slow kernels")
        assert reason in note


def test_with_matrix_units_nobody_is_told_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    from tests.unit.triton.triton_case import WITH_DOT

    monkeypatch.setattr(triton_support, "unit_of", lambda device: WITH_DOT)
    bounded = replace(SPEC, attention_soft_cap=30.0)
    assert prompt_notes("auto", bounded, HALF, torch.device("cuda")) == ()

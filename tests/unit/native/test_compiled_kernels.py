"""Which kernels an engine's tiers get, and lanes of decode and prefill rows together."""

import numpy as np
import pytest
import torch
from tests.unit.kernels.attention_case import exact_attention, make_case
from tests.unit.native.tier_case import make_tier

from tandem.engine.building.model_loading import host_kernel_notes
from tandem.kernels import native
from tandem.kernels.pages import PageShape, append_kv
from tandem.kernels.tier_kernels import ReferenceKernels
from tandem.memory.page import KVPageSpec
from tandem.runtime.choose_kernels import choose_kernels
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec, RopeSpec
from tandem.spec.tier import Tier

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.compiled_kernels import CompiledKernels
from tandem.kernels.native_pool import NativePool

CPU = torch.device("cpu")


def model(head_dim: int = 8) -> ModelSpec:
    return ModelSpec(
        "llama", 64, 16, 2, 2, 1, head_dim, 24, 512, rope=RopeSpec(), dtype=DType.FLOAT32
    )


def page(head_dim: int = 8) -> KVPageSpec:
    return KVPageSpec.of_model(model(head_dim), dtype=DType.FLOAT32, block_size=16)


@pytest.mark.parametrize(
    "rows",
    [
        [(20, 1), (70, 1), (40, 30), (9, 2)],
        [(40, 30), (33, 9)],
        [(20, 1), (33, 8), (5, 3)],
        [(33, 8), (50, 20)],
    ],
)
@pytest.mark.parametrize("block_index", [False, True])
def test_decode_and_prefill_rows_in_one_lane(
    rows: list[tuple[int, int]], block_index: bool
) -> None:
    case = make_case(rows, group=3, head_dim=16, dtype=torch.bfloat16)
    size = case.shape.block_size
    held = [list(range(-(-r.context // size))) for r in case.rows] if block_index else None
    tier = make_tier(case, held)
    kernels = CompiledKernels(NativePool(2), 6, case.shape, case.scale)
    planned = kernels.plan(tier.attention)
    assert planned.num_tokens == sum(r.queries for r in case.rows)
    result = kernels.attend(tier.query, tier.pages, planned)
    torch.testing.assert_close(
        tuple(result), tuple(exact_attention(case)), rtol=1e-5, atol=1e-5, check_dtype=False
    )


def test_append_means_the_torch_kernels_append() -> None:
    shape = PageShape(2, 16, 8)
    kernels = CompiledKernels(NativePool(2), 2, shape, 1.0)
    k, v = torch.randn(2, 40, 2, 8).unbind(0)
    slots = torch.from_numpy(np.random.default_rng(0).permutation(64)[:40])
    ours, theirs = (torch.zeros(4, 2, 2, 16, 8, dtype=torch.float16) for _ in range(2))
    kernels.append(ours, k, v, kernels.plan_append(slots))
    append_kv(theirs, k, v, slots)
    assert int(theirs.count_nonzero()) > 0
    assert torch.equal(ours, theirs)


def test_host_memory_gets_compiled_kernels_and_an_emulated_device_does_not() -> None:
    kernels = choose_kernels(model(), page(), CPU, torch.float32)
    assert isinstance(kernels[Tier.HOST], CompiledKernels)
    assert isinstance(kernels[Tier.DEVICE], ReferenceKernels)
    alone = choose_kernels(model(), page(), CPU, torch.float32, host_only=True)
    assert alone[Tier.DEVICE] is alone[Tier.HOST]
    assert native.choose_isa() in alone[Tier.HOST].name
    assert host_kernel_notes(model()) == ()


def test_threads_are_bounded_by_torchs() -> None:
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        kernels = choose_kernels(model(), page(), CPU, torch.float32)
        assert kernels[Tier.HOST].name.endswith("on 1 thread")
    finally:
        torch.set_num_threads(threads)


def test_reference_kernels_are_announced_where_the_compiled_ones_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "_extension", None)
    kernels = choose_kernels(model(), page(), CPU, torch.float32, host_only=True)
    assert isinstance(kernels[Tier.HOST], ReferenceKernels)
    (note,) = host_kernel_notes(model())
    assert "slow reference kernels" in note


def test_a_head_size_that_the_compiled_kernels_do_not_take_is_announced() -> None:
    kernels = choose_kernels(model(6), page(6), CPU, torch.float32, host_only=True)
    assert isinstance(kernels[Tier.HOST], ReferenceKernels)
    (note,) = host_kernel_notes(model(6))
    assert "the model's is 6" in note


def test_an_unknown_instruction_set_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TANDEM_CPU_ISA", "sse9")
    with pytest.raises(ConfigError, match="unknown instruction set 'sse9': choose one of"):
        host_kernel_notes(model())

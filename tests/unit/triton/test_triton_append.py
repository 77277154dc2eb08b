"""Appends by the Triton kernels: the same bytes as the torch kernels write, and no others."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import DEVICE, WITH_DOT

from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import ReferenceKernels
from tandem.kernels.triton_kernels import TritonKernels

TOKENS = 6


def append_both(
    shape: PageShape, k: torch.Tensor, v: torch.Tensor, page_dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Pages after an append by each, filled with something before."""
    slots = torch.from_numpy(np.random.default_rng(0).permutation(4 * shape.block_size)[:TOKENS])
    wide = (4, 2, shape.kv_heads, shape.block_size, shape.head_dim)
    if shape.code_bits:
        wide = (4, shape.quantized.page_bytes)
    ours, theirs = (torch.full(wide, 3, dtype=page_dtype) for _ in range(2))
    ours = ours.to(DEVICE)
    heads = shape.kv_heads
    kernels = TritonKernels(DEVICE, heads, shape, 1.0, 0.0, WITH_DOT, k.dtype)
    kernels.append(ours, k.to(DEVICE), v.to(DEVICE), kernels.plan_append(slots.to(DEVICE)))
    reference = ReferenceKernels(torch.device("cpu"), shape, 1.0)
    reference.append(theirs, k, v, reference.plan_append(slots))
    return ours.cpu(), theirs


@pytest.mark.parametrize("page_dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [8, 20])
def test_floats(head_dim: int, page_dtype: torch.dtype) -> None:
    k, v = torch.randn(2, TOKENS, 3, head_dim).unbind(0)
    if page_dtype is torch.bfloat16 and DEVICE.type == "cpu":
        k, v = k.bfloat16(), v.bfloat16()  # Triton's interpreter cuts float32 off, GPUs round it
    ours, theirs = append_both(PageShape(3, 16, head_dim), k, v, page_dtype)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_floats_of_one_byte(dtype: torch.dtype) -> None:
    """Subnormal, halves between two codes, beyond the largest, infinities and NaN."""
    k = (torch.randn(TOKENS, 3, 20) * torch.logspace(-5, 4, 20)).to(dtype)
    v = torch.arange(TOKENS * 60).view(TOKENS, 3, 20).to(dtype) / 1024
    v[0, 0, :4] = torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0])
    v[1] *= -1
    v[2, 0, :4] = torch.tensor([447.9, 448.0, 464.0, -465.0])
    ours, theirs = append_both(PageShape(3, 16, 20), k, v, torch.uint8)
    assert torch.equal(ours, theirs)


def test_slices_of_a_fused_projection() -> None:
    fused = torch.randn(TOKENS, 5, 8)
    k, v = fused[:, 1:3], fused[:, 3:]
    ours, theirs = append_both(PageShape(2, 16, 8), k, v, torch.float32)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("head_dim", [8, 96, 128])
def test_codes(bits: int, head_dim: int) -> None:
    k, v = torch.randn(2, TOKENS, 2, head_dim).unbind(0)
    ours, theirs = append_both(PageShape(2, 16, head_dim, bits), k, v, torch.uint8)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_of_odd_values(bits: int) -> None:
    """Halves between two codes, constants, values beyond float16, infinities and NaN."""
    k = torch.arange(64.0).expand(TOKENS, 2, 64).clone() / 2
    k[1, 0], k[2, 0, 3], k[3, 1, 5] = 7.25, torch.inf, torch.nan
    k[4] *= 1e6
    k[5], k[1, 1] = -0.0, 1e-8 * k[0, 0]
    v = -k
    ours, theirs = append_both(PageShape(2, 16, 64, bits), k, v, torch.uint8)
    assert torch.equal(ours, theirs)

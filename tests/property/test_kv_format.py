"""What quantizing keys and values keeps, whatever they are, and that both kernels agree on it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tandem.kernels import native
from tandem.kernels.pages import PageShape, append_planned, copy_blocks
from tandem.kernels.quantized_pages import code_rows, gather_quantized, pair_rows
from tandem.memory.quantized_page import QuantizedPage
from tandem.quant.kv_format import dequantize, quantize


@st.composite
def rows(draw: st.DrawFn) -> tuple[PageShape, Tensor, Tensor]:
    shape = PageShape(
        draw(st.integers(1, 3)),
        draw(st.sampled_from([16, 32])),
        draw(st.sampled_from([4, 8, 24, 32, 64, 80, 96, 128, 256])),
        draw(st.sampled_from([8, 4])),
    )
    random = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    size = (2, draw(st.integers(1, 5)), shape.kv_heads, shape.head_dim)
    values = torch.randn(size, generator=random) * 10.0 ** draw(st.integers(-6, 4))
    values += draw(st.sampled_from([0.0, 0.0, 1.0, -300.0]))
    if draw(st.booleans()):
        values[0, 0] = draw(st.sampled_from([0.0, -0.0, 1.0, -0.3]))
    k, v = values.to(draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16])))
    return shape, k, v


@given(rows())
def test_an_element_is_off_by_half_a_scale(case: tuple[PageShape, Tensor, Tensor]) -> None:
    shape, values, _ = case
    page = shape.quantized
    codes, pairs = quantize(values, page)
    held = values.double().clamp(-65504, 65504)
    error = (dequantize(codes, pairs, page).double() - held).abs()
    scale, minimum = pairs.double().repeat_interleave(page.group_size, -2).unbind(-1)
    scale, minimum = scale[..., : shape.head_dim], minimum[..., : shape.head_dim]
    # A float16 is off by 2^-11 of itself, or by 2^-25 where that is more; what that leaves out of
    # reach is off by it.
    levels = (1 << page.bits) - 1
    rounding = (minimum.abs() * 2.0**-11).clamp(min=2.0**-25)
    rounding += levels * (scale * 2.0**-11).clamp(min=2.0**-25) + 1e-6 * held.abs()
    assert bool((error <= scale / 2 + rounding).all())


@given(rows())
def test_tokens_are_found_again_and_nothing_else_is_touched(
    case: tuple[PageShape, Tensor, Tensor],
) -> None:
    shape, k, v = case
    page = shape.quantized
    slots = torch.randperm(3 * shape.block_size)[: len(k)]
    pages = torch.full((3, page.page_bytes), 77, dtype=torch.uint8)
    append_planned(pages, k, v, slots, shape)
    codes, pairs = quantize(torch.cat((k, v), 1), page)
    block, offset = slots // shape.block_size, slots % shape.block_size
    assert torch.equal(code_rows(pages, page)[block, :, offset], codes)
    held = pair_rows(pages, page)[block, :, offset]
    assert torch.equal(held.view(torch.int16), pairs.view(torch.int16))
    untouched = torch.full_like(pages, 77)
    code_rows(untouched, page)[block, :, offset] = codes
    pair_rows(untouched, page)[block, :, offset] = pairs
    assert torch.equal(pages, untouched)
    everything = gather_quantized(
        pages, torch.arange(3 * 2 * shape.kv_heads), shape.block_size, shape.block_size, page
    ).view(3, 2 * shape.kv_heads, shape.block_size, shape.head_dim)
    expected = dequantize(codes, pairs, page)
    assert torch.equal(everything[block, :, offset], expected)


@given(rows())
def test_copied_blocks_hold_the_same_bytes(case: tuple[PageShape, Tensor, Tensor]) -> None:
    shape, k, v = case
    source = torch.randint(0, 256, (2, 4, shape.quantized.page_bytes), dtype=torch.uint8)
    append_planned(source[1], k, v, torch.arange(len(k)), shape)
    target = torch.zeros_like(source)
    ids = torch.tensor([0, 3])
    copy_blocks(source, ids, target, ids.flip(0))
    assert torch.equal(target[:, [3, 0]], source[:, ids])
    assert not target[:, 1:3].any()


@pytest.mark.skipif(not native.available(), reason="no compiled kernels")
@given(rows())
def test_compiled_append_writes_the_same_bytes(case: tuple[PageShape, Tensor, Tensor]) -> None:
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.kernels.native_pool import NativePool

    shape, k, v = case
    slots = torch.randperm(2 * shape.block_size)[: len(k)]
    ours, theirs = torch.full((2, 2, shape.quantized.page_bytes), 77, dtype=torch.uint8)
    CompiledKernels(NativePool(1), shape.kv_heads, shape, 1.0).append(ours, k, v, slots)
    append_planned(theirs, k, v, slots, shape)
    assert torch.equal(ours, theirs)


def test_sizes() -> None:
    for bits, head_dim, row_bytes, groups in [(8, 128, 128, 2), (4, 128, 64, 2), (4, 80, 48, 3)]:
        page = QuantizedPage(bits, 2, 16, head_dim)
        assert (page.row_bytes, page.groups) == (row_bytes, groups)
        assert page.page_bytes == 2 * 2 * 16 * (row_bytes + groups * 4)

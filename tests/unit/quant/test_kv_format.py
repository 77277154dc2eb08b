"""Quantized keys and values: bytes, special values."""

import pytest
import torch

from tandem.memory.quantized_page import QuantizedPage
from tandem.quant.kv_format import dequantize, quantize


def test_four_bit_codes_lie_in_halves_of_32() -> None:
    page = QuantizedPage(4, 1, 16, 32)
    values = torch.arange(32.0) % 16
    values[16:] = 15 - values[16:]
    codes, pairs = quantize(values, page)
    assert codes.tolist() == [i | (15 - i) << 4 for i in range(16)]
    assert pairs.tolist() == [[1.0, 0.0]]
    assert torch.equal(dequantize(codes, pairs, page), values)


def test_each_group_has_its_own_scale_and_minimum() -> None:
    page = QuantizedPage(8, 1, 16, 128)
    values = torch.cat((torch.arange(64) * 4.0 - 100, torch.full((64,), 7.0)))
    values[63] = 155.0
    codes, pairs = quantize(values, page)
    assert pairs.tolist() == [[1.0, -100.0], [0.0, 7.0]]
    assert codes[64:].eq(0).all()
    assert torch.equal(dequantize(codes, pairs, page), values)


def test_rows_are_filled_with_the_last_element() -> None:
    page = QuantizedPage(8, 1, 16, 40)
    assert (page.row_elements, page.group_size, page.groups) == (64, 64, 1)
    values = torch.linspace(-1.0, 1.0, 40)
    codes, pairs = quantize(values, page)
    assert codes[40:].eq(codes[39]).all()
    assert dequantize(codes, pairs, page).shape == (40,)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
def test_a_group_with_a_number_that_is_none_is_nan_as_a_whole(bits: int, bad: float) -> None:
    page = QuantizedPage(bits, 1, 16, 128)
    values = torch.randn(128)
    values[70] = bad
    result = dequantize(*quantize(values, page), page)
    assert torch.isfinite(result[:64]).all()
    assert torch.isnan(result[64:]).all()


@pytest.mark.parametrize("bits", [8, 4])
def test_numbers_beyond_float16_count_as_its_largest(bits: int) -> None:
    page = QuantizedPage(bits, 1, 16, 64)
    values = torch.tensor([1e30, -1e30]).repeat(32)
    result = dequantize(*quantize(values, page), page)
    assert torch.isfinite(result).all()
    assert result.abs().min() > 65000


@pytest.mark.parametrize(
    ("bits", "head_dim", "message"), [(3, 64, "8 or 4 bits, not 3"), (8, 513, "1 to 512, not 513")]
)
def test_what_there_is_no_layout_for_is_refused(bits: int, head_dim: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuantizedPage(bits, 1, 16, head_dim)

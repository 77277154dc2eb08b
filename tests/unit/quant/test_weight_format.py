"""Sizes and refusals of quantized weights."""

import pytest
import torch

from tandem.quant.packing import pack_nibbles, unpack_nibbles
from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.quant.scaled_floats import ScaledFloats
from tandem.spec.errors import ConfigError
from tandem.spec.weight_format import WeightFormat


def test_sizes_are_those_of_the_tensors() -> None:
    for bits, group in [(4, 32), (4, 128), (8, 64)]:
        weight = quantize(torch.randn(6, 256), WeightFormat(bits, group))
        tensors = (weight.q, weight.scales, weight.zeros)
        assert weight.size_bytes == sum(t.nbytes for t in tensors)
        assert (weight.outputs, weight.inputs) == (6, 256)


@pytest.mark.parametrize(("columns", "group"), [(256, 128), (128, 128), (96, 32), (192, 64)])
def test_floats_keep_their_bytes_and_each_block_s_scale(columns: int, group: int) -> None:
    codes = torch.arange(6 * 256).to(torch.uint8).view(6, 256)
    codes = torch.where(codes & 0x7F == 0x7F, 0, codes)  # not a number
    scales = torch.rand(6, -(-256 // columns)) * 1e-7  # no numbers of float16
    stored = ScaledFloats(codes.view(torch.float8_e4m3fn), scales, columns)
    packed = stored.packed(WeightFormat(8, group, floats=True))
    assert torch.equal(packed.dequantize(), stored.dequantize())
    assert torch.equal(packed.q, codes)
    assert packed.size_bytes == sum(t.nbytes for t in (packed.q, packed.scales, packed.zeros))
    assert packed.size_bytes == 6 * 256 + 6 * 256 // group * 4
    kept = QuantizedWeight.allocate(packed.format, (6, 256))
    kept.rows(2, 4).copy_(packed.rows(2, 4))
    assert torch.equal(kept.rows(2, 4).dequantize(), stored.dequantize()[2:])


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_floats_that_are_not_finite_are_refused(code: int) -> None:
    form = WeightFormat(8, 32, floats=True)
    codes = torch.full((1, 32), 0x7E, dtype=torch.uint8)
    for scale in (torch.inf, torch.nan, 1e38):  # the last times 448 is none of float32
        stored = ScaledFloats(codes.view(torch.float8_e4m3fn), torch.full((1, 1), scale), 32)
        with pytest.raises(ValueError, match="finite"):
            stored.packed(form)
    codes[0, 3] = code
    stored = ScaledFloats(codes.view(torch.float8_e4m3fn), torch.ones(1, 1), 32)
    with pytest.raises(ValueError, match="finite"):
        stored.packed(form)


def test_nothing_is_rounded_to_floats_of_a_byte() -> None:
    with pytest.raises(ValueError, match="fp8:32"):
        quantize(torch.randn(2, 64), WeightFormat(8, 32, floats=True))
    with pytest.raises(ConfigError, match="choose 8"):
        WeightFormat(4, 32, floats=True)


def test_nibbles_lie_in_halves_of_32() -> None:
    q = torch.arange(32, dtype=torch.uint8)[None] % 16
    q[0, 16:] = 15 - q[0, 16:]
    packed = pack_nibbles(q)
    assert packed.shape == (1, 16)
    assert packed[0].tolist() == [i | (15 - i) << 4 for i in range(16)]
    assert torch.equal(unpack_nibbles(packed), q)


@pytest.mark.parametrize(("bits", "group"), [(3, 32), (4, 48), (16, 128)])
def test_unknown_formats_are_refused(bits: int, group: int) -> None:
    with pytest.raises(ConfigError):
        WeightFormat(bits, group)


def test_rows_must_be_whole_groups() -> None:
    with pytest.raises(ConfigError, match="100 elements"):
        quantize(torch.randn(2, 100), WeightFormat(4, 32))


def test_what_a_scale_cannot_span_is_refused() -> None:
    weight = torch.zeros(1, 32)
    weight[0, 0] = 2e7
    with pytest.raises(ValueError, match="too far"):
        quantize(weight, WeightFormat(8, 32))
    weight[0, 0] = torch.nan
    with pytest.raises(ValueError, match="finite"):
        quantize(weight, WeightFormat(8, 32))


def test_whole_numbers_beyond_the_format_are_refused() -> None:
    form = WeightFormat(4, 32)
    q = torch.full((1, 32), 16)
    scales, zeros = torch.ones(1, 1), torch.zeros(1, 1)
    with pytest.raises(ValueError, match="q must lie"):
        QuantizedWeight.from_whole_numbers(form, q, scales, zeros)
    with pytest.raises(ValueError, match="zeros must lie"):
        QuantizedWeight.from_whole_numbers(form, q - 1, scales, zeros - 1)
    with pytest.raises(ValueError, match="float16"):
        QuantizedWeight.from_whole_numbers(form, q - 1, scales + 1e-5, zeros)


def test_tensors_that_do_not_fit_are_refused() -> None:
    form = WeightFormat(4, 32)
    q, zeros = torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 2, dtype=torch.uint8)
    scales = torch.ones(2, 2, dtype=torch.float16)
    QuantizedWeight(form, q, scales, zeros)
    with pytest.raises(ValueError, match="scales"):
        QuantizedWeight(form, q, scales.float(), zeros)
    with pytest.raises(ValueError, match="zeros"):
        QuantizedWeight(form, q, scales, zeros[:, :1])
    with pytest.raises(ValueError, match="q must be"):
        QuantizedWeight(form, q.short(), scales, zeros)

"""Sizes and refusals of quantized weights."""

import pytest
import torch

from tandem.quant.packing import pack_nibbles, unpack_nibbles
from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.errors import ConfigError
from tandem.spec.weight_format import WeightFormat


def test_sizes_are_those_of_the_tensors() -> None:
    for bits, group in [(4, 32), (4, 128), (8, 64)]:
        weight = quantize(torch.randn(6, 256), WeightFormat(bits, group))
        tensors = (weight.q, weight.scales, weight.zeros)
        assert weight.size_bytes == sum(t.nbytes for t in tensors)
        assert (weight.outputs, weight.inputs) == (6, 256)


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

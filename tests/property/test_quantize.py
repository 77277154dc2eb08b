"""What quantizing keeps, whatever the weights."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import BITS, GROUPS, WeightFormat

formats = st.builds(WeightFormat, st.sampled_from(BITS), st.sampled_from(GROUPS))


@st.composite
def weights(draw: st.DrawFn) -> tuple[WeightFormat, torch.Tensor]:
    form = draw(formats)
    random = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    shape = (draw(st.integers(1, 5)), form.group * draw(st.integers(1, 3)))
    weight = torch.randn(shape, generator=random) * 10.0 ** draw(st.integers(-8, 4))
    weight += draw(st.sampled_from([0.0, 0.0, 1.0, -300.0]))
    if draw(st.booleans()):  # whole rows of one value
        weight[0] = draw(st.sampled_from([0.0, 1.0, -0.3]))
    return form, weight.to(draw(st.sampled_from([torch.float32, torch.bfloat16])))


@given(weights())
def test_an_element_is_off_by_half_a_scale(case: tuple[WeightFormat, torch.Tensor]) -> None:
    form, weight = case
    given = quantize(weight, form)
    scales = given.scales.double().repeat_interleave(form.group, 1)
    # A float16 is off by 2^-10 of itself, or by 2^-24 where that is more.
    rounding = form.largest * (scales * 2.0**-10).clamp(min=2.0**-24)
    error = (given.dequantize().double() - weight.double()).abs()
    assert bool((error <= (scales / 2 + rounding) * (1 + 1e-9)).all())


@given(weights())
def test_quantizing_again_changes_nothing(case: tuple[WeightFormat, torch.Tensor]) -> None:
    form, weight = case
    once = quantize(weight, form)
    twice = quantize(once.dequantize(), form)
    assert torch.equal(once.dequantize(), twice.dequantize())


@given(formats, st.integers(0, 1000))
def test_whole_numbers_of_other_tools_are_kept(form: WeightFormat, seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    inputs = 2 * form.group
    q = torch.randint(0, form.largest + 1, (3, inputs), generator=random)
    zeros = torch.randint(0, form.largest + 1, (3, 2), generator=random)
    scales = torch.rand(3, 2, generator=random).half()
    weight = QuantizedWeight.from_whole_numbers(form, q, scales, zeros)
    wide = zeros.repeat_interleave(form.group, 1), scales.double().repeat_interleave(form.group, 1)
    assert torch.equal(weight.whole_numbers().long(), q)
    assert torch.equal(weight.dequantize().double(), (q - wide[0]) * wide[1])

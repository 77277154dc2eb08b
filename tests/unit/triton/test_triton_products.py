"""Linear maps with quantized weights by the Triton kernels, against float64 and the reference."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.triton.triton_case import DEVICE, WITH_DOT, WITHOUT_DOT

from tandem.kernels import triton_products
from tandem.kernels.triton_products import cut_product, dequantize, most_rows_fused, multiply
from tandem.kernels.triton_support import TritonDevice
from tandem.models.linear import quantized_linear
from tandem.models.weight_layout import Affine
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.quant.scaled_floats import ScaledFloats
from tandem.spec.weight_format import BITS, GROUPS, WeightFormat

FLOATS = tuple(WeightFormat(8, group, floats=True) for group in GROUPS)
FORMATS = (*(WeightFormat(bits, group) for bits in BITS for group in GROUPS), *FLOATS)
TOLERANCE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def weight_of(format: WeightFormat, outputs: int, inputs: int, seed: int = 0) -> QuantizedWeight:
    """Any codes, zeros and scales."""
    make = torch.Generator().manual_seed(seed)
    groups = (outputs, inputs // format.group)
    if format.floats:
        codes = torch.randint(0, 256, (outputs, inputs), generator=make).to(torch.uint8)
        codes = torch.where(codes & 0x7F == 0x7F, 0, codes).view(torch.float8_e4m3fn)
        return ScaledFloats(codes, torch.rand(groups, generator=make) * 1e-2, format.group).packed(
            format
        )
    q = torch.randint(0, format.largest + 1, (outputs, inputs), generator=make)
    zeros = torch.randint(0, format.largest + 1, groups, generator=make)
    scales = (torch.rand(groups, generator=make) * 0.1).to(torch.float16)
    return QuantizedWeight.from_whole_numbers(format, q, scales, zeros)


def on_device(weight: QuantizedWeight) -> QuantizedWeight:
    q, scales, zeros = (t.to(DEVICE) for t in (weight.q, weight.scales, weight.zeros))
    return QuantizedWeight(weight.format, q, scales, zeros)


def check(
    weight: QuantizedWeight,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    unit: TritonDevice = WITH_DOT,
) -> None:
    found = multiply(
        x.to(DEVICE), on_device(weight), None if bias is None else bias.to(DEVICE), unit
    )
    rounded = weight.dequantize().to(x.dtype).double()
    expected = x.double() @ rounded.T
    if bias is not None:
        expected += bias.double()
    assert found.dtype == x.dtype
    assert found.shape == expected.shape
    # Sums of many products: what is lost is a share of the sum of their sizes.
    limit = TOLERANCE[x.dtype] * (x.double().abs() @ rounded.abs().T + 1.0)
    assert bool(((found.cpu().double() - expected).abs() <= limit).all())


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 16, 17])
def test_formats(format: WeightFormat, rows: int) -> None:
    weight = weight_of(format, 40, 3 * format.group)
    check(weight, torch.randn(rows, 3 * format.group), torch.randn(40))


@pytest.mark.parametrize("format", [f for f in FORMATS if f.group == 32], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_without_matrix_units(format: WeightFormat, rows: int) -> None:
    weight = weight_of(format, 37, 160)
    assert rows <= most_rows_fused(4, WITHOUT_DOT)
    check(weight, torch.randn(rows, 160), torch.randn(37), WITHOUT_DOT)


@pytest.mark.parametrize("format", [f for f in FORMATS if f.group == 64], ids=str)
def test_sixteen_bits(format: WeightFormat) -> None:
    weight = weight_of(format, 48, 256)
    check(weight, torch.randn(5, 256).to(torch.float16))
    # Triton's interpreter multiplies the bits of bfloat16 matrices as if they were integers
    unit = WITHOUT_DOT if DEVICE.type == "cpu" else WITH_DOT
    check(weight, torch.randn(4, 256).to(torch.bfloat16), unit=unit)


@pytest.mark.parametrize("format", [f for f in FORMATS if f.group == 32], ids=str)
def test_splits_add_up_and_take_the_bias_once(format: WeightFormat) -> None:
    weight = weight_of(format, 32, 32 * 33)
    shape = cut_product(weight.format, 32, 32 * 33, 2, 4, WITH_DOT)
    assert shape.splits > 1
    assert shape.splits * shape.split_groups >= 33
    assert (shape.splits - 1) * shape.split_groups < 33
    check(weight, torch.randn(2, 32 * 33), torch.randn(32) * 100)


def test_rows_of_a_wider_tensor_and_of_a_slice_of_outputs() -> None:
    whole = weight_of(WeightFormat(4, 32), 64, 96)
    x = torch.randn(6, 2, 96)[:, 1]
    check(whole.rows(20, 17), x)


def test_only_the_first_side_of_a_grid_grows_with_the_outputs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs, grids = 9_000_000, list[tuple[int, ...]]()  # CUDA allows 65,535 of other sides

    class Kernel:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            grids.append(grid)
            return lambda *_, **__: None

    monkeypatch.setattr(triton_products, "dequantize_codes", Kernel())
    weight = QuantizedWeight(
        q=torch.empty(outputs, 16, dtype=torch.uint8),
        scales=torch.empty(outputs, 1, dtype=torch.float16),
        zeros=torch.empty(outputs, 1, dtype=torch.uint8),
        format=WeightFormat(4, 32),
    )
    triton_products.dequantize(weight, torch.bfloat16)
    assert grids == [(-(-outputs * 16 // 2048),)]


def test_no_rows() -> None:
    weight = on_device(weight_of(WeightFormat(8, 32), 8, 32))
    assert multiply(torch.empty(0, 32, device=DEVICE), weight, None, WITH_DOT).shape == (0, 8)


def test_only_own_rows_are_read() -> None:
    """What lies behind the inputs, and behind a slice of the weight, may be anything."""
    weight = weight_of(WeightFormat(8, 32), 64, 96)
    weight.scales[33:] = torch.nan
    x = torch.full((20, 96), torch.nan)
    x[:3] = torch.randn(3, 96)
    check(weight.rows(0, 33), x[:3])


@given(
    format=st.sampled_from(FORMATS),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 9),
    rows=st.integers(1, 40),
    processors=st.sampled_from((1, 8, 200)),
    seed=st.integers(0, 9),
)
def test_any_shape(
    format: WeightFormat, outputs: int, groups: int, rows: int, processors: int, seed: int
) -> None:
    inputs = format.group * groups
    weight = weight_of(format, outputs, inputs, seed)
    check(
        weight,
        torch.randn(rows, inputs, generator=torch.Generator().manual_seed(seed)),
        unit=replace(WITH_DOT, processors=processors),
    )


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_dequantized_bits_are_the_reference_s(dtype: torch.dtype, format: WeightFormat) -> None:
    weight = weight_of(format, 5, {32: 32, 64: 2112, 128: 1024}[format.group])
    found = dequantize(on_device(weight), dtype).cpu()
    assert torch.equal(found, weight.dequantize().to(dtype))


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("unit", [WITH_DOT, WITHOUT_DOT])
@pytest.mark.parametrize("rows", [2, 200])
def test_a_layer_s_map_takes_either_way(rows: int, unit: TritonDevice, floats: bool) -> None:
    format = WeightFormat(8 if floats else 4, 64, floats=floats)
    weight = on_device(weight_of(format, 50, 128))
    x, bias = torch.randn(rows, 128, device=DEVICE), torch.randn(50, device=DEVICE)
    affine = Affine(weight.q, bias, weight)
    found = quantized_linear(affine, weight, x, unit)
    expected = x @ weight.dequantize().T + bias
    torch.testing.assert_close(found, expected, atol=2e-4, rtol=2e-4)
    torch.testing.assert_close(found, quantized_linear(affine, weight, x, None))

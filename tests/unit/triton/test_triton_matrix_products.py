"""Products of 16 bits with quantized weights, cut for matrix units, against float64.

Triton's interpreter multiplies the bits of bfloat16 matrices as if they were integers, and has no
assembly: here float16, decoded plainly; `tests/gpu` has the rest.
"""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.triton.test_triton_products import FORMATS, on_device, weight_of
from tests.unit.triton.triton_case import DEVICE, WITH_DOT

from tandem.kernels import triton_matrix_products
from tandem.kernels.product_tiles import cut_groups
from tandem.kernels.triton_products import multiply
from tandem.kernels.triton_support import TritonDevice
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

KINDS = (WeightFormat(4, 64), WeightFormat(8, 64), WeightFormat(8, 64, floats=True))


def product(
    weight: QuantizedWeight,
    x: torch.Tensor,
    bias: torch.Tensor | None = None,
    unit: TritonDevice = WITH_DOT,
) -> torch.Tensor:
    """Its result, which must be as near as its type and sums of float32 let it be."""
    there = None if bias is None else bias.to(DEVICE)
    found = multiply(x.to(DEVICE), on_device(weight), there, unit).cpu()
    # codes are exact in 16 bits: weights are not rounded to them
    exact = weight.dequantize().double()
    expected = x.double() @ exact.T
    if bias is not None:
        expected += bias.double()
    limit = 2.0**-10 * expected.abs() + 1e-5 * (x.double().abs() @ exact.abs().T + 1.0)
    assert found.dtype == x.dtype
    assert bool(((found.double() - expected).abs() <= limit).all())
    return found


def rows_of(rows: int, inputs: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, inputs, generator=generator) / 8).half()


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("rows", [1, 3, 9, 17, 70])
def test_formats_over_ragged_rows_and_outputs(format: WeightFormat, rows: int) -> None:
    inputs = 3 * format.group  # an odd number of groups
    product(weight_of(format, 75, inputs), rows_of(rows, inputs), torch.randn(75).half())


@pytest.mark.parametrize("format", KINDS, ids=str)
@pytest.mark.parametrize("rows", [3, 20])
def test_the_last_of_the_splits_adds_all_up_and_leaves_zeros(
    format: WeightFormat, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters, none = triton_matrix_products._memory(DEVICE)
    monkeypatch.setattr(triton_matrix_products, "_memory", lambda device: (counters, none))
    cut = cut_groups(format, 40, 64 * 20, rows, WITH_DOT.processors)
    assert cut.splits > 1
    weight, x, bias = weight_of(format, 40, 64 * 20), rows_of(rows, 64 * 20), torch.ones(40).half()
    first = product(weight, x, bias * 100)
    assert int(counters.abs().sum()) == 0
    assert torch.equal(product(weight, x, bias * 100), first)


@pytest.mark.parametrize("format", KINDS, ids=str)
def test_many_rows_of_a_large_map(format: WeightFormat) -> None:
    unit = replace(WITH_DOT, processors=1)
    assert cut_groups(format, 1040, 256, 100, 1).tile.rows == 128
    product(weight_of(format, 1040, 256), rows_of(100, 256), unit=unit)


def test_only_own_rows_are_read() -> None:
    """What lies behind the inputs, and behind a slice of the weight, may be anything."""
    for format in KINDS:
        whole = weight_of(format, 64, 192)
        whole.scales[53:] = torch.nan
        x = torch.full((20, 192), torch.nan).half()
        x[:3] = rows_of(3, 192)
        for rows in (1, 3):
            product(whole.rows(20, 33), x[:rows])


def test_rows_of_a_wider_tensor() -> None:
    product(weight_of(WeightFormat(4, 32), 20, 96), rows_of(12, 96).reshape(6, 2, 96)[:, 1])


@given(
    format=st.sampled_from(FORMATS),
    outputs=st.integers(1, 70),
    groups=st.integers(1, 17),
    rows=st.integers(1, 40),
    processors=st.sampled_from((1, 8, 200)),
    seed=st.integers(0, 9),
)
def test_any_shape(
    format: WeightFormat, outputs: int, groups: int, rows: int, processors: int, seed: int
) -> None:
    inputs = format.group * groups
    unit = replace(WITH_DOT, processors=processors)
    product(weight_of(format, outputs, inputs, seed), rows_of(rows, inputs, seed), unit=unit)

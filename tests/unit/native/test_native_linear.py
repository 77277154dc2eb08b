"""Compiled linear maps at their edges; `tests/property` draws their shapes."""

from collections.abc import Callable

import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.linear_case import KINDS, activate, make_linear

from tandem.kernels.native_linear import (
    Activation,
    LinearEnd,
    NativeLinear,
    dequantize,
    linear,
    linear_into,
    submit_linear,
)
from tandem.kernels.native_pool import NativePool, Signal
from tandem.quant.quantize import quantize
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat


@pytest.fixture(scope="module", params=native.supported_isas())
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [*range(1, 71), 512])
def test_each_number_of_rows(pool: NativePool, kind: str, rows: int) -> None:
    case = make_linear(kind, 157, 1056, bias=True)
    x = torch.randn(rows, 1056, generator=torch.Generator().manual_seed(rows))
    error = (linear(pool, case.native, x) - case.sums(x)).abs()
    # A quantized sum is formed with q and with z, each larger than q - z.
    assert bool((error <= 1e-6 * case.sizes(x) * (3 if "int" in kind else 1)).all())


@pytest.mark.parametrize("kind", KINDS)
def test_results_do_not_depend_on_threads(kind: str) -> None:
    case = make_linear(kind, 301, 1056)
    for rows in (1, 3, 7, 40, 100):
        x = torch.randn(rows, 1056)
        for rounds in {False, kind == "int8"}:
            one, three = (
                linear(NativePool(n), case.native, x, int8_activations=rounds) for n in (1, 3)
            )
            assert torch.equal(one, three)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 8, 47, 48, 49, 70])
def test_rounded_activations_are_off_by_half_a_step_at_most(
    pool: NativePool, group: int, rows: int
) -> None:
    case = make_linear("int8", 157, 1280, group=group, bias=True)
    x = torch.randn(rows, 1280, generator=torch.Generator().manual_seed(rows))
    x[:, : 2 * group] *= 1e4  # outliers cost their own group alone
    x[:, 2 * group : 3 * group] = 0
    y = linear(pool, case.native, x, int8_activations=True)
    half_steps = x.double().view(rows, -1, group).abs().amax(2) / 254
    spread = case.values.abs().view(157, -1, group).sum(2)
    allowed = 1.0001 * half_steps @ spread.t() + 3e-6 * case.sizes(x)
    error = (y - case.sums(x)).abs()
    assert bool((error <= allowed).all())
    assert float(error.norm() / case.sums(x).norm()) < 0.01


def test_whole_activations_are_multiplied_exactly(pool: NativePool) -> None:
    case = make_linear("int8", 40, 256, group=64)
    x = torch.randint(-127, 128, (9, 256), generator=torch.Generator().manual_seed(0)).float()
    x[:, ::64] = 127  # each group has its largest: a step is 1
    y = linear(pool, case.native, x, int8_activations=True)
    assert bool(((y - case.sums(x)).abs() <= 1e-6 * case.sizes(x)).all())


def test_the_largest_whole_numbers_do_not_overflow(pool: NativePool) -> None:
    format, ones = WeightFormat(8, 128), torch.ones(3, 128)
    q = torch.full((3, 128), 255, dtype=torch.uint8)
    zeros = torch.tensor([[0], [255], [1]])
    weight = QuantizedWeight.from_whole_numbers(format, q, torch.ones(3, 1), zeros)
    expected = torch.tensor([255.0, 0.0, 254.0]) * 128
    for sign in (1, -1):
        y = linear(pool, NativeLinear.quantized(weight), sign * ones, int8_activations=True)
        assert bool(((y - sign * expected).abs() <= 0.02).all())


def test_rounding_keeps_numbers_that_are_none(pool: NativePool) -> None:
    case = make_linear("int8", 5, 64)
    x = torch.randn(4, 64)
    x[0, 3], x[1, 40], x[2, 63] = torch.nan, torch.inf, -torch.inf
    y = linear(pool, case.native, x, int8_activations=True)
    assert bool(y[:3].isnan().all())
    assert bool(y[3].isfinite().all())
    tiny = linear(pool, case.native, torch.full((1, 64), 1e-42), int8_activations=True)
    assert bool((tiny.abs() < 1e-30).all())


@pytest.mark.parametrize("rows", [1, 4, 6])
def test_a_gate_multiplies_what_lies_below_it(pool: NativePool, rows: int) -> None:
    case = make_linear("bfloat16", 2 * 75, 64, bias=True)
    x = torch.randn(rows, 64)
    y = torch.empty(rows, 75)
    linear_into(y, pool, case.native, x, LinearEnd.GATED, Activation.SILU)
    gate, up = case.sums(x).chunk(2, 1)
    expected = activate(gate, Activation.SILU) * up
    torch.testing.assert_close(y.double(), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("activation", [Activation.SILU, Activation.GELU, Activation.GELU_TANH])
def test_smooth_activations_are_accurate(pool: NativePool, activation: Activation) -> None:
    x = torch.cat((torch.linspace(-9, 12, 100_001), torch.tensor([-1e4, 1e4, 3e38, -3e38])))
    y = linear(pool, NativeLinear.of(torch.ones(1, 1)), x[:, None], activation)[:, 0].double()
    # By the identity: torch's own silu and tanh cancel for negative numbers.
    exact, wide = activate(x.double(), activation), x.double()
    if activation == Activation.GELU_TANH:
        exact = wide / (1 + (-1.5957691216057308 * (wide + 0.044715 * wide**3)).exp())
    normal = exact.abs() > 1e-36
    # The cubic's rounding is that of an exponent.
    allowed = 1e-6 + (2e-8 * wide.abs() ** 3 if activation == Activation.GELU_TANH else 0)
    assert bool(((y - exact).abs() <= allowed * exact.abs())[normal].all())
    assert bool((y[~normal].abs() < 2e-36).all())


def test_numbers_that_are_none_stay_so(pool: NativePool) -> None:
    weight = NativeLinear.of(torch.ones(1, 1))
    x = torch.tensor([[torch.nan], [torch.inf], [-torch.inf]])
    for activation in (Activation.RELU, Activation.SILU, Activation.GELU, Activation.GELU_TANH):
        y = linear(pool, weight, x, activation)[:, 0].tolist()
        assert y[0] != y[0]
        assert y[1:] == [torch.inf, 0]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_dequantized_values_are_the_reference(pool: NativePool, bits: int, group: int) -> None:
    weight = torch.randn(301, 3 * group, generator=torch.Generator().manual_seed(0))
    quantized = quantize(weight * torch.logspace(-7, 3, 301)[:, None], WeightFormat(bits, group))
    given = dequantize(pool, NativeLinear.quantized(quantized))
    assert torch.equal(given.view(torch.int32), quantized.dequantize().view(torch.int32))


def test_it_waits_for_its_signal() -> None:
    pool, gate, end = NativePool(2), Signal(), Signal()
    case = make_linear("float16", 9, 40)
    x, y = torch.randn(2, 40), torch.zeros(2, 9)
    pending = submit_linear(y, pool, case.native, x, after=[(gate, 1)], then=(end, 1))
    assert not pending.wait(0.002)
    assert not bool(y.any())
    gate.set(1)
    assert end.wait(1, 30.0)
    torch.testing.assert_close(y, linear(pool, case.native, x), rtol=0, atol=0)


MAP = make_linear("float32", 6, 64).native


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("weight must be contiguous", lambda _: NativeLinear.of(torch.ones(4, 6).t())),
        ("weight must be float32", lambda _: NativeLinear.of(torch.ones(4, 6).double())),
        (r"weight must be \[outputs", lambda _: NativeLinear.of(torch.ones(4))),
        ("inputs must be", lambda _: NativeLinear.of(torch.ones(4, 0))),
        ("bias must have", lambda _: NativeLinear.of(torch.ones(4, 6), torch.ones(5))),
        ("bias must be float32", lambda _: NativeLinear.of(torch.ones(4, 6), torch.ones(4).half())),
        ("x must have rows", lambda pool: linear(pool, MAP, torch.ones(0, 64))),
        ("x must have the shape", lambda pool: linear(pool, MAP, torch.ones(2, 63))),
        ("x must be float32", lambda pool: linear(pool, MAP, torch.ones(2, 64).half())),
        ("x must be contiguous", lambda pool: linear(pool, MAP, torch.ones(64, 2).t())),
        (
            "rows of x must not overlap",
            lambda pool: linear(pool, MAP, torch.ones(66).as_strided((3, 64), (1, 1))),
        ),
        (
            "only x of int8 weights can be rounded",
            lambda pool: linear(pool, MAP, torch.ones(2, 64), int8_activations=True),
        ),
        (
            "y must have the shape",
            lambda pool: linear_into(
                torch.ones(2, 6), pool, MAP, torch.ones(2, 64), LinearEnd.GATED
            ),
        ),
        (
            "an activation needs",
            lambda pool: linear_into(
                torch.ones(2, 6),
                pool,
                MAP,
                torch.ones(2, 64),
                activation=Activation.RELU,
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused(message: str, call: Callable[[NativePool], object]) -> None:
    with pytest.raises(ValueError, match=message):
        call(NativePool(1))

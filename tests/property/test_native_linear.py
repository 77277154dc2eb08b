"""Compiled linear maps are exact to rounding, and touch nothing else, whatever the shape."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tests.unit.native.linear_case import KINDS, LinearCase, activate, make_linear

from tandem.kernels.native_linear import Activation, LinearEnd, linear_into
from tandem.kernels.native_pool import NativePool

POISON = -12345.0


@pytest.fixture(scope="module", params=native.supported_isas())
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


@st.composite
def maps(draw: st.DrawFn, even: bool) -> LinearCase:
    kind = draw(st.sampled_from(KINDS))
    outputs = draw(st.integers(1, 90)) * (2 if even else 1)
    group = draw(st.sampled_from([32, 64, 128]))
    quantized = kind.startswith("int")
    inputs = group * draw(st.integers(1, 10)) if quantized else draw(st.integers(1, 1100))
    bias, seed = draw(st.booleans()), draw(st.integers(0, 100))
    return make_linear(kind, outputs, inputs, group=group, bias=bias, seed=seed)


@given(st.data())
def test_a_map_and_its_end(pool: NativePool, data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(list(LinearEnd)))
    activates = end in (LinearEnd.GATED, LinearEnd.ACTIVATE)
    activation = data.draw(st.sampled_from(list(Activation))) if activates else Activation.NONE
    case = data.draw(maps(even=end == LinearEnd.GATED))
    rows = data.draw(st.one_of(st.integers(1, 6), st.integers(1, 70)))
    columns = case.native.outputs // (2 if end == LinearEnd.GATED else 1)
    x_gap, y_gap = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    random = torch.Generator().manual_seed(rows)
    padded = torch.full((rows, case.native.inputs + x_gap), torch.nan)
    x = padded[:, : case.native.inputs]
    x.copy_(torch.randn(x.shape, generator=random))
    memory = torch.full((rows + 1, columns + y_gap), POISON)
    y = memory[:rows, :columns]
    before = torch.randn(y.shape, generator=random) if end == LinearEnd.ADD else y
    y.copy_(before)
    expected = activate(case.sums(x)[:, :columns], activation)
    # A quantized sum is formed with q and with z, each larger than q - z.
    size = 4 * case.sizes(x)
    if end == LinearEnd.GATED:
        up = case.sums(x)[:, columns:]
        size = size[:, :columns] * (1 + up.abs()) + size[:, columns:] * expected.abs()
        expected = expected * up
    elif end == LinearEnd.ADD:
        expected = expected + before
        size = size + before.abs()
    linear_into(y, pool, case.native, x, end, activation)
    assert bool(((y - expected).abs() <= 1e-6 * size).all())
    assert bool((memory[rows:] == POISON).all())
    assert bool((memory[:, columns:] == POISON).all())


@given(st.data())
def test_a_map_with_rounded_activations(pool: NativePool, data: st.DataObject) -> None:
    group = data.draw(st.sampled_from([32, 64, 128]))
    outputs, groups = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 20))
    rows = data.draw(st.one_of(st.integers(1, 6), st.integers(1, 120)))
    seed = data.draw(st.integers(0, 100))
    case = make_linear("int8", outputs, group * groups, group=group, bias=True, seed=seed)
    random = torch.Generator().manual_seed(seed)
    x_gap, y_gap = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    padded = torch.full((rows, case.native.inputs + x_gap), torch.nan)
    x = padded[:, : case.native.inputs]
    x.copy_(torch.randn(x.shape, generator=random))
    memory = torch.full((rows + 1, outputs + y_gap), POISON)
    y = memory[:rows, :outputs]
    linear_into(y, pool, case.native, x, int8_activations=True)
    half_steps = x.double().unflatten(1, (groups, group)).abs().amax(2) / 254
    spread = case.values.abs().unflatten(1, (groups, group)).sum(2)
    allowed = 1.0001 * half_steps @ spread.t() + 4e-6 * case.sizes(x)
    assert bool(((y - case.sums(x)).abs() <= allowed).all())
    assert bool((memory[rows:] == POISON).all())
    assert bool((memory[:, outputs:] == POISON).all())

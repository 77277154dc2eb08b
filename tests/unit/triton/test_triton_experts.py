"""A mixture's experts by the Triton kernels, against float64 and torch's one at a time."""

from functools import partial

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.triton.test_triton_products import TOLERANCE, on_device, weight_of
from tests.unit.triton.triton_case import DEVICE, WITH_DOT, WITHOUT_DOT

from tandem.kernels import triton_expert_products
from tandem.kernels.triton_expert_products import (
    Chosen,
    ExpertMap,
    Weight,
    expert_tile,
    expert_total,
    multiply_experts,
)
from tandem.kernels.triton_support import TritonDevice
from tandem.models.expert_steps import ExpertSteps
from tandem.models.layer_state import LayerState
from tandem.models.layer_steps import gated
from tandem.models.weight_layout import Affine, Modules
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.model import ExpertSpec
from tandem.spec.weight_format import BITS, WeightFormat

silu_gated = partial(gated, "silu")

FLOAT_CODES = 88  # in place of bits
KINDS = (0, *BITS, FLOAT_CODES)


def weights_of(
    bits: int, experts: int, outputs: int, inputs: int, dtype: torch.dtype = torch.float32
) -> list[Weight]:
    """0 bits: not quantized; `FLOAT_CODES`: floats of a byte."""
    if bits:
        form = WeightFormat(min(bits, 8), 32, floats=bits == FLOAT_CODES)
        return [on_device(weight_of(form, outputs, inputs, seed)) for seed in range(experts)]
    make = torch.Generator().manual_seed(1)
    made = torch.randn(experts, outputs, inputs, generator=make).to(dtype) / 8
    return list(made.to(DEVICE))


def floats_of(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    whole = weight.dequantize() if isinstance(weight, QuantizedWeight) else weight
    return whole.to(dtype).double().cpu()


def chosen_of(tokens: int, per_token: int, experts: int, seed: int = 0) -> torch.Tensor:
    """Different experts of each token: int64 [tokens, per_token]."""
    scores = torch.rand(tokens, experts, generator=torch.Generator().manual_seed(seed))
    return scores.topk(per_token).indices


def check(
    weights: list[Weight],
    chosen: torch.Tensor,
    x: torch.Tensor,
    shares: torch.Tensor | None = None,
    unit: TritonDevice = WITH_DOT,
    elsewhere: frozenset[int] = frozenset(),
) -> None:
    """`x` has a row for each token, or one for each place."""
    here = [None if n in elsewhere else weight for n, weight in enumerate(weights)]
    found = ExpertMap.of(here)
    assert found is not None
    order = Chosen.of(chosen.to(DEVICE), len(weights))
    given = None if shares is None else shares.flatten().to(DEVICE)
    y = multiply_experts(x.to(DEVICE), found, order, given, unit).cpu().double()
    places = chosen.flatten().tolist()
    assert y.shape == (len(places), found.outputs)
    for place, expert in enumerate(places):
        row = x[place * len(x) // len(places)].double()
        w = floats_of(weights[expert], x.dtype)
        share = 1.0 if shares is None else float(shares.flatten()[place])
        expected = w @ row * share * (expert not in elsewhere)
        limit = TOLERANCE[x.dtype] * (w.abs() @ row.abs() + 1.0)
        assert bool(((y[place] - expected).abs() <= limit).all()), (place, expert)


@pytest.mark.parametrize("bits", KINDS)
@pytest.mark.parametrize("unit", [WITH_DOT, WITHOUT_DOT])
@pytest.mark.parametrize("tokens", [1, 5])
def test_each_place_by_its_expert(bits: int, unit: TritonDevice, tokens: int) -> None:
    weights = weights_of(bits, 4, 40, 96)
    check(weights, chosen_of(tokens, 2, 4), torch.randn(tokens, 96), unit=unit)


@pytest.mark.parametrize("bits", KINDS)
@pytest.mark.parametrize("unit", [WITH_DOT, WITHOUT_DOT])
def test_shares_and_a_row_for_each_place(bits: int, unit: TritonDevice) -> None:
    shares = torch.rand(5, 2)
    check(weights_of(bits, 4, 40, 96), chosen_of(5, 2, 4), torch.randn(10, 96), shares, unit)


@pytest.mark.parametrize("bits", KINDS)
def test_experts_of_another_device_add_nothing(bits: int) -> None:
    weights, chosen = weights_of(bits, 4, 32, 64), chosen_of(6, 2, 4)
    check(weights, chosen, torch.randn(6, 64), elsewhere=frozenset({0, 2}))


@pytest.mark.parametrize("bits", KINDS)
def test_an_expert_with_more_rows_than_a_tile_and_others_with_none(bits: int) -> None:
    chosen = torch.full((35, 1), 2)
    check(weights_of(bits, 4, 33, 64), chosen, torch.randn(35, 64))


@pytest.mark.parametrize("bits", KINDS)
def test_sixteen_bits(bits: int) -> None:
    weights, chosen = weights_of(bits, 3, 32, 64, torch.float16), chosen_of(5, 2, 3)
    check(weights, chosen, torch.randn(5, 64).to(torch.float16))


def test_weights_that_do_not_lie_at_multiples_of_sixteen_bytes() -> None:
    memory = torch.randn(3 * 40 * 96 + 3, device=DEVICE)
    size = 40 * 96
    weights: list[Weight] = [
        memory[n * (size + 1) : n * (size + 1) + size].view(40, 96) for n in range(3)
    ]
    assert (weights[1].data_ptr() - weights[0].data_ptr()) % 16  # pyright: ignore[reportAttributeAccessIssue]
    check(weights, chosen_of(4, 2, 3), torch.randn(4, 96))


@pytest.mark.parametrize("bits", KINDS)
def test_offsets_say_that_they_are_multiples_of_what_is_read_at_once(bits: int) -> None:
    """Else a GPU reads a byte or an element at a time."""
    found = ExpertMap.of(weights_of(bits, 3, 32, 64))
    assert found is not None
    assert found.unit_bytes == 16


def test_what_is_not_alike_is_left_to_torch() -> None:
    codes, floats = weights_of(4, 2, 32, 64), weights_of(0, 2, 32, 64)
    assert ExpertMap.of([codes[0], floats[0]]) is None
    assert ExpertMap.of([None, None]) is None
    assert ExpertMap.of([floats[0], floats[1].new_zeros(16, 64)]) is None  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("unit", [WITH_DOT, WITHOUT_DOT])
@pytest.mark.parametrize("element_bytes", [2, 4])
def test_a_model_has_two_tiles_at_most(unit: TritonDevice, element_bytes: int) -> None:
    tiles = {expert_tile(places, 128, element_bytes, unit) for places in range(1, 9000, 7)}
    assert len(tiles) <= 2


def modules_of(bits: int, experts: int, hidden: int, inner: int) -> Modules:
    made: Modules = {}
    for name, outputs, inputs in (("gate_up", 2 * inner, hidden), ("down", hidden, inner)):
        for number, weight in enumerate(weights_of(bits, experts, outputs, inputs)):
            codes = weight.q if isinstance(weight, QuantizedWeight) else weight
            whole = weight if isinstance(weight, QuantizedWeight) else None
            made[f"experts.{number}.{name}"] = Affine(codes, None, whole)
    return made


@settings(max_examples=15)
@given(
    bits=st.sampled_from(KINDS),
    tokens=st.integers(0, 9),
    experts=st.integers(1, 6),
    data=st.data(),
)
def test_the_total_is_that_of_experts_in_turn(
    bits: int, tokens: int, experts: int, data: st.DataObject
) -> None:
    per_token = data.draw(st.integers(1, experts))
    hidden, inner = 64, 32
    missing = data.draw(st.sets(st.integers(0, experts - 1), max_size=experts - 1))
    modules = modules_of(bits, experts, hidden, inner)
    modules = {k: a for k, a in modules.items() if int(k.split(".")[1]) not in missing}
    steps = ExpertSteps(ExpertSpec(experts, per_token, inner), silu_gated)
    x = torch.randn(tokens, hidden, device=DEVICE)
    state = LayerState(torch.zeros(tokens, dtype=torch.int64, device=DEVICE), torch.zeros_like(x))
    state.x, state.experts = x, chosen_of(tokens, per_token, experts).to(DEVICE)
    state.expert_weights = torch.rand(tokens, per_token, device=DEVICE)
    found = steps.grouped_total(modules, state, WITH_DOT)
    assert found is not None
    in_turn = steps.total_in_turn(modules, state)  # what runs without Triton
    of_all = steps._total_of_all(modules, state)
    limit = 1e-4 * float(in_turn.abs().max()) if tokens else 0.0  # sums of large numbers
    torch.testing.assert_close(found, in_turn, atol=limit, rtol=0.0)
    torch.testing.assert_close(of_all, in_turn, atol=limit, rtol=0.0)


def test_without_matrix_units_many_tokens_are_torch_s() -> None:
    modules, experts = modules_of(0, 2, 64, 32), 2
    steps = ExpertSteps(ExpertSpec(experts, 1, 32), silu_gated)

    def total_of(tokens: int, unit: TritonDevice) -> torch.Tensor | None:
        x = torch.randn(tokens, 64, device=DEVICE)
        state = LayerState(torch.zeros(tokens, dtype=torch.int64, device=DEVICE), x)
        state.x, state.experts = x, torch.zeros(tokens, 1, dtype=torch.int64, device=DEVICE)
        state.expert_weights = torch.ones(tokens, 1, device=DEVICE)
        return steps.grouped_total(modules, state, unit)

    assert total_of(64 * experts, WITHOUT_DOT) is not None
    assert total_of(64 * experts + 1, WITHOUT_DOT) is None
    assert total_of(64 * experts + 1, WITH_DOT) is not None


def test_many_tokens_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = modules_of(0, 4, 64, 32)
    maps = [
        ExpertMap.of([modules[f"experts.{n}.{name}"].weight for n in range(4)])
        for name in ("gate_up", "down")
    ]
    assert maps[0] is not None
    assert maps[1] is not None
    x, chosen = torch.randn(7, 64, device=DEVICE), chosen_of(7, 2, 4).to(DEVICE)
    shares = torch.rand(7, 2, device=DEVICE)
    whole = expert_total(x, chosen, shares, maps[0], maps[1], silu_gated, WITH_DOT)
    # of a token: gates and ups twice over, and results, for each of two experts
    monkeypatch.setattr(
        triton_expert_products, "EXPERT_SCRATCH_BYTES", 3 * 2 * (2 * 64 * 4 + 64 * 4)
    )
    sizes: list[int] = []
    multiply = triton_expert_products.multiply_experts

    def noted(rows: torch.Tensor, *rest: object) -> torch.Tensor:
        sizes.append(len(rows))
        return multiply(rows, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(triton_expert_products, "multiply_experts", noted)
    found = expert_total(x, chosen, shares, maps[0], maps[1], silu_gated, WITH_DOT)
    assert sizes == [3, 6, 3, 6, 1, 2]
    torch.testing.assert_close(found, whole)

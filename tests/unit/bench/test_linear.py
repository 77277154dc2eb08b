"""The linear benchmark computes what it times, and holds it against its bounds."""

import pytest
import torch

from tandem.kernels import native

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.bench import linear
from tandem.bench.linear_cell import Cell, CellWeights
from tandem.bench.linear_peers import torch_forms
from tandem.bench.records import row_of_samples
from tandem.kernels.native_linear import Activation, LinearEnd, linear_into
from tandem.kernels.native_pool import NativePool
from tandem.probes.linear_cases import (
    BFLOAT16,
    FLOAT16,
    Copies,
    MatrixShape,
    WeightKind,
    make_copies,
    quantized_kind,
)
from tandem.spec.errors import ConfigError

SHAPE = MatrixShape(64, 128)


@pytest.fixture(autouse=True)
def _small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two copies of each weight will do where nothing is measured."""
    from tandem.probes import linear_cases

    monkeypatch.setattr(linear_cases, "_CACHE_MULTIPLE", 0)


def _copies(kind: WeightKind, shape: MatrixShape = SHAPE) -> Copies:
    torch.manual_seed(0)
    return make_copies(shape, kind)


@pytest.mark.parametrize("kind", linear.KINDS, ids=str)
def test_all_variants_compute_the_same(kind: WeightKind) -> None:
    copies = _copies(kind)
    assert copies.count == 2
    weights = [w.dequantize() for w in copies.quantized] or [w.float() for w in copies.tensors]
    x = torch.randn(5, SHAPE.inputs)
    y = torch.empty(5, SHAPE.outputs)
    forms = torch_forms(copies)
    assert forms
    for i, weight in enumerate(weights):
        expected = x @ weight.t()
        linear_into(y, NativePool(1), copies.native()[i], x)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
        for calls in forms.values():
            error = (calls[i](x).float() - expected).abs().max()
            assert error < 0.03 * expected.abs().max()


def test_a_gated_map_is_followed_by_its_activation() -> None:
    copies = _copies(BFLOAT16, MatrixShape(64, 128, gated=True))
    x, y = torch.randn(3, 128), torch.empty(3, 32)
    linear_into(y, NativePool(1), copies.native()[0], x, LinearEnd.GATED, Activation.SILU)
    for calls in torch_forms(copies).values():
        torch.testing.assert_close(calls[0](x).float(), y, rtol=3e-2, atol=3e-2)


def test_every_rate_has_its_bound_and_threads_are_put_back() -> None:
    threads, told = torch.get_num_threads(), list[str]()
    config = linear.LinearBench((SHAPE,), (FLOAT16,), (1, 40), (1,), rounds=2)
    rows = linear.run_linear(config, told.append)
    assert told == [f"linear 64x128 float16 {n} rows 1 threads" for n in (1, 40)]
    assert torch.get_num_threads() == threads
    for case in told:
        own = {(row.variant, row.metric): row for row in rows if row.case == case}
        rate = next(row for row in own.values() if row.variant.startswith("tandem"))
        probe, product = own["read probe", "bandwidth"], own["torch float32 product", "rate"]
        reading = probe.value / (SHAPE.outputs * SHAPE.inputs * 2)
        assert rate.bound is not None
        flops = 2 * SHAPE.outputs * SHAPE.inputs * (1 if " 1 rows" in case else 40)
        # A median of minima lies near the minimum of medians.
        assert rate.bound <= 1.001 * max(product.spread[1], reading * flops)  # type: ignore[index]
        assert all(row.value > 0 for row in own.values())
        assert any(row.metric == "speed over torch best, paired" for row in own.values())


def test_rounded_activations_state_their_error() -> None:
    config = linear.LinearBench((SHAPE,), (quantized_kind(8, 64),), (3,), (1,), rounds=2)
    rows = linear.run_linear(config, lambda _: None)
    exact, rounded = (row for row in rows if row.metric == "error over size, rms")
    assert exact.value < 1e-5 < 1e-3 < rounded.value < 0.02
    rates = [row for row in rows if row.metric == "rate" and "int8 activations" in row.variant]
    assert any(row.variant.startswith("tandem") for row in rates)


def test_targets_are_measured() -> None:
    names = [str(cell) for cell in linear.cells(linear.full())]
    for kind in ("float32", "float16", "bfloat16", "int8/64", "int8/128", "int4/64"):
        for rows in (1, 4, 8, 32, 128, 512):
            assert any(f"14336x4096 {kind} {rows} rows" in name for name in names)
    for shape in ("4096x4096", "4096x14336", "1024x2816", "5632x1024 gate-up"):
        assert any(f" {shape} float16 32 rows" in name for name in names)


def test_a_part_can_be_asked_for() -> None:
    chosen = linear.cells(linear.full("4096x4096 float16 8 rows"))
    assert [str(cell.shape) for cell in chosen] == ["4096x4096"]
    with pytest.raises(ConfigError, match="no case contains 'float7'"):
        linear.run_linear(linear.full("float7"), print)


def test_what_would_take_minutes_is_left_out_of_larger_batches() -> None:
    cell = Cell(SHAPE, FLOAT16, threads=1, rows=1)
    weights = CellWeights.make(cell)
    slow = "torch linear"
    assert slow in weights.peers(1)
    rates = [("tandem avx2", 100.0), (slow, 1.0), ("torch FBGEMM packed", 30.0)]
    weights.leave_out_slow(
        cell, [row_of_samples("c", name, "rate", [r], "GFLOP/s", 1.0) for name, r in rates]
    )
    assert slow not in weights.peers(1)
    assert slow in weights.peers(2)
    assert "torch FBGEMM packed" in weights.peers(1)


def test_quantized_weights_have_the_size_of_trained_ones() -> None:
    weight = _copies(quantized_kind(4, 64)).quantized[0].dequantize()
    assert 0.3 < float(weight.std()) * SHAPE.inputs**0.5 < 3

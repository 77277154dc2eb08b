"""Stages with weights in few bits: read as they lie, or dequantized before many rows."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.questions import short

from tandem.cost.quantized import (
    COMPILED,
    MATRIX_UNITS_FROM,
    CodeKernels,
    PreciseStage,
    gpu_kernels,
)
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown, stage_cost
from tandem.kernels.triton_support import FIRST_WITH_DOT
from tandem.models.catalogue import plannable_spec
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_accelerator
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

RATES = DeviceRates(100e9, 50e12, 2e-6)
PLAIN = Precision.uniform(DType.BFLOAT16)
LLAMA = short(plannable_spec("llama-3.1-8b"), 2)
EXPERTS = short(plannable_spec("qwen3-30b-a3b"), 2)
GPU = gpu_kernels(load_accelerator("rtx4090").accelerator, DType.BFLOAT16)


def precision(model: ModelSpec, bits: int) -> Precision:
    return replace(PLAIN, quantized=uniform_formats(model, bits, None))


def cost(model: ModelSpec, tokens: int, bits: int, kernels: CodeKernels) -> CostBreakdown:
    operations = [op for op in layer_operations(model) if not op.is_attention]
    return PreciseStage(operations, precision(model, bits), kernels).cost(tokens, RATES)


@pytest.mark.parametrize("model", [LLAMA, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("tokens", [1, 300])
@pytest.mark.parametrize("kernels", [COMPILED, GPU], ids=["compiled", "gpu"])
def test_without_quantized_weights_it_is_the_cost_of_a_stage(
    model: ModelSpec, tokens: int, kernels: CodeKernels
) -> None:
    operations = [op for op in layer_operations(model) if not op.is_attention]
    found = PreciseStage(operations, PLAIN, kernels).cost(tokens, RATES)
    plain = stage_cost(operations, tokens, DType.BFLOAT16, RATES)
    assert found.compute_s == plain.compute_s
    assert found.memory_s == pytest.approx(plain.memory_s)
    assert (found.launch_s, found.apart_s) == (plain.launch_s, 0)


@pytest.mark.parametrize("kernels", [COMPILED, GPU], ids=["compiled", "gpu"])
@pytest.mark.parametrize("bits", [8, 4])
def test_kernels_that_dequantize_in_registers_read_the_bytes_that_there_are(
    bits: int, kernels: CodeKernels
) -> None:
    found = cost(LLAMA, 1, bits, kernels)
    size = layer_matrix_bytes(LLAMA, precision(LLAMA, bits))
    assert found.memory_s == pytest.approx(size / 100e9, rel=0.01)
    assert found.apart_s == 0
    # of experts, those that a token needs
    few, all_ = (cost(EXPERTS, tokens, bits, kernels).memory_s for tokens in (1, 300))
    assert few < 0.2 * all_


@pytest.mark.parametrize("bits", [8, 4])
def test_a_gpu_dequantizes_before_it_multiplies_many_rows(bits: int) -> None:
    few, many = (cost(LLAMA, rows, bits, GPU) for rows in (128, 129))
    elements = layer_matrix_bytes(LLAMA, PLAIN) / 2
    codes = layer_matrix_bytes(LLAMA, precision(LLAMA, bits))
    assert many.compute_s == pytest.approx(few.compute_s, rel=0.01)
    # codes read and elements written, and results of 129 rows moved: q, k, v, o, gate, up, down
    results = 129 * 2 * 2 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    assert many.apart_s == pytest.approx((codes + 2 * elements + results) / 100e9, rel=0.01)
    assert many.memory_s == pytest.approx(few.memory_s + (2 * elements - codes) / 100e9, rel=0.01)
    # 218 million weights, four million at a time: to dequantize, to multiply, to put in place
    assert (many.launch_s - few.launch_s) / 2e-6 == pytest.approx(3 * 52, abs=30)
    assert many.total_s == max(many.compute_s, many.memory_s) + many.launch_s + many.apart_s
    # the compiled kernels go on as before
    assert cost(LLAMA, 129, bits, COMPILED).apart_s == 0


def test_an_expert_s_rows_decide_and_not_the_step_s() -> None:
    # of 128 experts, 8 for a token: 1,000 tokens are 62 rows each, 4,000 are 250
    old = gpu_kernels(load_accelerator("t4").accelerator, DType.FLOAT16)
    assert cost(EXPERTS, 1000, 4, old).apart_s < 0.1 * cost(EXPERTS, 4000, 4, old).apart_s
    # with matrix units all are multiplied by codes, in one launch for all
    few, many = (cost(EXPERTS, tokens, 4, GPU) for tokens in (2, 4000))
    assert many.apart_s < 0.1 * cost(EXPERTS, 4000, 4, old).apart_s
    assert many.launch_s - few.launch_s < 60 * 2e-6


@pytest.mark.parametrize(
    ("card", "dtype", "rows"),
    [
        ("rtx4090", DType.FLOAT16, 128),
        ("rtx4090", DType.FLOAT32, 16),
        ("t4", DType.FLOAT16, 4),
        ("v100", DType.FLOAT32, 4),
    ],
)
def test_what_a_card_multiplies_by_codes(card: str, dtype: DType, rows: int) -> None:
    assert gpu_kernels(load_accelerator(card).accelerator, dtype).most_rows == rows


def test_prices_and_kernels_agree_on_matrix_units() -> None:
    major, minor = FIRST_WITH_DOT
    assert major + minor / 10 == MATRIX_UNITS_FROM


@given(st.integers(1, 4096), st.integers(0, 4096), st.sampled_from([8, 4]))
def test_more_rows_take_no_less(rows: int, more: int, bits: int) -> None:
    for model in (LLAMA, EXPERTS):
        times = [cost(model, tokens, bits, GPU).total_s for tokens in (rows, rows + more)]
        assert times[0] <= times[1] * (1 + 1e-9)


TILED = replace(RATES, tile_rows=64)


@given(rows=st.integers(1, 600), more=st.integers(0, 100))
def test_whole_tiles_are_computed_and_only_their_rows_moved(rows: int, more: int) -> None:
    operations = [op for op in layer_operations(LLAMA) if not op.is_attention]
    stage = PreciseStage(operations, PLAIN, GPU)
    plain, tiled = stage.cost(rows, RATES), stage.cost(rows, TILED)
    assert tiled._replace(compute_s=plain.compute_s) == plain
    whole = stage.cost(-(-rows // 64) * 64, RATES)
    assert tiled.compute_s == pytest.approx(whole.compute_s)
    assert stage.cost(rows + more, TILED).compute_s >= tiled.compute_s
    mean = replace(TILED, counted_rows=100)
    assert stage.cost(rows + more, mean).compute_s >= stage.cost(rows, mean).compute_s
    assert stage.cost(rows, mean).compute_s >= plain.compute_s


@pytest.mark.parametrize(("rows", "computed"), [(80, 128), (64, 64), (200, 200)])
def test_products_by_codes_compute_whole_tiles_of_their_own(rows: int, computed: int) -> None:
    """More rows than are multiplied by codes are multiplied by elements."""
    operations = [op for op in layer_operations(LLAMA) if not op.is_attention]
    stage = PreciseStage(operations, precision(LLAMA, 4), GPU)
    tiled = stage.cost(rows, replace(RATES, code_tile_rows=64))
    assert tiled.compute_s == pytest.approx(stage.cost(computed, RATES).compute_s)

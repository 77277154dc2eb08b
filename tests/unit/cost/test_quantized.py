"""Stages with weights in few bits: bytes read as they lie, or passes of dequantization."""

from dataclasses import replace

import pytest
from tests.unit.planner.questions import short

from tandem.cost.quantized import PreciseStage
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import stage_cost
from tandem.models.catalogue import plannable_spec
from tandem.spec.dtype import DType
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_bytes
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

RATES = DeviceRates(100e9, 50e12, 2e-6)
PLAIN = Precision.uniform(DType.BFLOAT16)
LLAMA = short(plannable_spec("llama-3.1-8b"), 2)
EXPERTS = short(plannable_spec("qwen3-30b-a3b"), 2)


def cost_s(model: ModelSpec, tokens: int, bits: int | None, *, fused: bool) -> float:
    precision = PLAIN
    if bits is not None:
        precision = replace(PLAIN, quantized=uniform_formats(model, bits, None))
    operations = [op for op in layer_operations(model) if not op.is_attention]
    return PreciseStage(operations, precision, fused=fused).cost(tokens, RATES).memory_s


@pytest.mark.parametrize("model", [LLAMA, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("tokens", [1, 300])
@pytest.mark.parametrize("fused", [True, False])
def test_without_quantized_weights_it_is_the_cost_of_a_stage(
    model: ModelSpec, tokens: int, fused: bool
) -> None:
    operations = [op for op in layer_operations(model) if not op.is_attention]
    found = PreciseStage(operations, PLAIN, fused=fused).cost(tokens, RATES)
    plain = stage_cost(operations, tokens, DType.BFLOAT16, RATES)
    assert found.compute_s == plain.compute_s
    assert found.memory_s == pytest.approx(plain.memory_s)
    assert found.launch_s == plain.launch_s


@pytest.mark.parametrize("bits", [8, 4])
def test_kernels_that_dequantize_in_registers_read_the_bytes_that_there_are(bits: int) -> None:
    precision = replace(PLAIN, quantized=uniform_formats(LLAMA, bits, None))
    found = cost_s(LLAMA, 1, bits, fused=True)
    assert found == pytest.approx(layer_matrix_bytes(LLAMA, precision) / 100e9, rel=0.01)
    # of experts, those that a token needs
    few, all_ = (cost_s(EXPERTS, tokens, bits, fused=True) for tokens in (1, 300))
    assert few < 0.2 * all_


@pytest.mark.parametrize(("bits", "bytes_of_an_element"), [(8, 29), (4, 32)])
def test_dequantizing_elsewhere_takes_passes_over_memory_and_kernels(
    bits: int, bytes_of_an_element: int
) -> None:
    elements = layer_matrix_bytes(LLAMA, PLAIN) / 2
    found = cost_s(LLAMA, 1, bits, fused=False)
    assert found == pytest.approx(elements * bytes_of_an_element / 100e9, rel=0.01)
    precision = replace(PLAIN, quantized=uniform_formats(LLAMA, bits, None))
    operations = [op for op in layer_operations(LLAMA) if not op.is_attention]
    costs = [PreciseStage(operations, p, fused=False).cost(1, RATES) for p in (PLAIN, precision)]
    # 218 million weights, four million at a time
    parts = elements / (1 << 22)
    assert (costs[1].launch_s - costs[0].launch_s) / 2e-6 > 7 * parts
    assert costs[1].compute_s == costs[0].compute_s

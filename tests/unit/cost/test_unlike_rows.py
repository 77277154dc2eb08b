"""What stages take at least in passes with unlike numbers of rows."""

from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.planner.questions import short

from tandem.cost.quantized import COMPILED, CodeKernels, PreciseStage, gpu_kernels
from tandem.cost.rates import DeviceRates
from tandem.cost.unlike_rows import UnlikeRows, least_stage
from tandem.models.catalogue import plannable_spec
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_accelerator
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

PLAIN = Precision.uniform(DType.FLOAT16)
DENSE = short(plannable_spec("llama-3.1-8b"), 2)
EXPERTS = short(plannable_spec("qwen3-30b-a3b"), 2)
RATES = DeviceRates(300e9, 60e12, 2e-6, dequantize_share=0.8)
KERNELS = [COMPILED, *(gpu_kernels(load_accelerator(name).accelerator, DType.FLOAT16)
                       for name in ("t4", "a100-40"))]  # fmt: skip


def stage_of(model: ModelSpec, bits: int | None, kernels: CodeKernels) -> PreciseStage:
    operations = [op for op in layer_operations(model) if not op.is_attention]
    maps = {} if bits is None else uniform_formats(model, bits, None)
    return PreciseStage(operations, replace(PLAIN, quantized=maps), kernels)


STAGES = [
    stage_of(model, bits, kernels)
    for model in (DENSE, EXPERTS)
    for bits in (None, 4)
    for kernels in KERNELS
]


def alike(mean: float, most: int, at_once: int | None = None) -> UnlikeRows:
    return UnlikeRows(mean, 1, most, at_once or most)


@given(
    st.sampled_from(STAGES),
    st.integers(1, 1300).flatmap(
        lambda most: st.tuples(
            st.just(most), st.lists(st.integers(1, most), min_size=1, max_size=6)
        )
    ),
)
def test_no_passes_take_less(stage: PreciseStage, drawn: tuple[int, list[int]]) -> None:
    most, passes = drawn
    costs = [stage.cost(rows, RATES) for rows in passes]
    least = least_stage(stage, alike(fmean(passes), most), RATES)
    assert least.total_s <= fmean(cost.total_s for cost in costs) * (1 + 1e-9)
    assert least.memory_s <= fmean(cost.memory_s for cost in costs) * (1 + 1e-9)


@given(st.sampled_from(STAGES), st.integers(1, 40), st.data())
def test_no_batches_take_less_however_rows_are_shared(
    stage: PreciseStage, at_once: int, data: st.DataObject
) -> None:
    batch = st.lists(st.integers(0, at_once), min_size=4, max_size=4).filter(any)
    passes = data.draw(st.lists(batch, min_size=1, max_size=4))
    taken = [sum(stage.cost(rows, RATES).total_s for rows in each if rows) for each in passes]
    rows = alike(fmean(map(sum, passes)), 4 * at_once, at_once)
    assert least_stage(stage, rows, RATES).total_s <= fmean(taken) * (1 + 1e-9)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("rows", [1, 16, 17, 300])
def test_passes_that_all_have_the_most_take_what_they_take(stage: PreciseStage, rows: int) -> None:
    found = least_stage(stage, alike(rows, rows), RATES)
    assert found.total_s == pytest.approx(stage.cost(rows, RATES).total_s)


def test_few_rows_of_some_passes_read_few_experts() -> None:
    """Half of the passes with 2 of 128 rows' mean of 65 read less than all with 65."""
    stage = stage_of(EXPERTS, None, KERNELS[-1])
    assert not stage.is_convex
    assert stage_of(DENSE, None, KERNELS[-1]).is_convex
    unlike = fmean(stage.cost(rows, RATES).total_s for rows in (2, 128))
    found = least_stage(stage, alike(65, 128), RATES).total_s
    assert found <= unlike < 0.8 * stage.cost(65, RATES).total_s
    assert found > 0.9 * unlike

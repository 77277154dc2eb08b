"""The papers' inputs from a model's facts."""

import pytest

from tandem.bench.papers.kvpr import GPU_EFFICIENCY
from tandem.bench.papers.models import MODELS
from tandem.bench.papers.park_egger import single_batch
from tandem.cost.from_model import (
    kv_fetch,
    offload_workload,
    operation_sizes,
    operation_times,
)
from tandem.cost.kvpr.recompute import RecomputeRates, best_recompute
from tandem.cost.park_egger.search import best_split
from tandem.cost.park_egger.split_memory import split_memory
from tandem.cost.rates import DeviceRates, LinkRates
from tandem.spec.dtype import DType
from tandem.spec.operations import Stage
from tandem.spec.parameters import kv_bytes_per_token, num_parameters

HOST = DeviceRates(60e9, 1e12, 0.0)
A4000 = DeviceRates(448e9, 70e12, 0.0)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("OPT-6.7B", 6.66), ("OPT-30B", 29.97), ("OPT-66B", 65.72), ("LLaMA-30B", 32.53)],
)
def test_models_have_their_parameters(name: str, billions: float) -> None:
    assert num_parameters(MODELS[name]) / 1e9 == pytest.approx(billions, rel=2e-3)


def test_table_6a_is_bytes_over_one_link_rate() -> None:
    """All of the H2D column follows from the time of Q; K and V of 50 rows hold 522 tokens."""
    table = {op.name: op.link_s for op in single_batch()}
    rate = 2 * 7168**2 / table["Q"]
    times = operation_times(
        MODELS["OPT-30B"], 50, 522, DType.FLOAT16, host=HOST, accelerator=A4000,
        link=LinkRates(rate, 0.0),
    )  # fmt: skip
    for op in times:
        if op.name != "FC.act":  # part of FC.0 in the table
            assert op.link_s == pytest.approx(table[op.name], rel=2e-3, abs=2e-6)


def test_modelled_times_can_be_searched_and_placed() -> None:
    spec = MODELS["OPT-30B"]
    times = operation_times(
        spec, 50, 522, DType.FLOAT16, host=HOST, accelerator=A4000, link=LinkRates(24e9, 1e-5)
    )
    split = best_split(times)
    alone = best_split(times, slices=[Stage(0, len(times))])
    assert split.cost.latency_s < 0.7 * alone.cost.latency_s
    sizes = operation_sizes(spec, 50, 522, DType.FLOAT16)
    memory = split_memory(sizes, split.gpu, layers=spec.num_layers)
    kv = 50 * 522 * kv_bytes_per_token(spec, DType.FLOAT16)
    weights = spec.num_layers * sum(size.weight_bytes for size in sizes)
    assert memory.host_bytes == kv + weights


def test_grouped_queries_come_from_the_model() -> None:
    rates = RecomputeRates(32e9, GPU_EFFICIENCY * 312e12)
    grouped = best_recompute(kv_fetch(MODELS["LLaMA-3.1-8B"], 32, 1024, DType.FLOAT16), rates)
    full = best_recompute(kv_fetch(MODELS["LLaMA-2-7B"], 32, 1024, DType.FLOAT16), rates)
    assert grouped.tokens == 0 < full.tokens


def test_a_block_of_opt_30b_has_the_papers_weights() -> None:
    workload = offload_workload(MODELS["OPT-30B"], prompt=64, generate=128, rows=640)
    assert workload.layer_weights == 4 * 7168**2 + 2 * 7168 * 28672

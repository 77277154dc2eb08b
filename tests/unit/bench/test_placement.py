"""The bench of weights that do not fit: what is measured, and the chain that it is held against."""

import os
from dataclasses import replace

import pytest

from tandem.bench.placement import WAYS, PlacementBench, run_placement
from tandem.kernels import native
from tandem.models.catalogue import plannable_spec
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ExpertSpec

NARROW = replace(
    plannable_spec("llama-3.1-8b"), num_layers=8, vocab_size=2048, hidden_size=256,
    intermediate_size=1024, num_heads=4, num_kv_heads=2, head_dim=64,
)  # fmt: skip
LAYER_BYTES = 2 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 1024)


MIXTURE = replace(NARROW, experts=ExpertSpec(count=16, per_token=2, intermediate_size=512))
two_cores = pytest.mark.skipif(
    not native.available() or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)


@two_cores
def test_every_way_is_held_against_its_chain() -> None:
    cores = os.sched_getaffinity(0)
    told: list[str] = []
    bench = PlacementBench(NARROW, "narrow", memory_shares=(0.9,), step_tokens=2, rounds=2)
    rows = run_placement(bench, told.append)
    assert os.sched_getaffinity(0) == cores
    assert len(told) == len(WAYS)
    rates = {row.variant: row for row in rows if row.metric == "decode throughput"}
    assert list(rates) == [f"paced {way}" for way in WAYS]
    assert all(row.value > 0 and row.bound for row in rates.values())
    # the link is so slow beside all else that only what it carries matters
    chain_s = 1 / (rates["paced stream"].bound or 0)
    carried = chain_s * load_hardware("small").link.h2d_bytes_per_s / LAYER_BYTES
    assert carried == pytest.approx(round(carried), abs=0.3)
    assert 2 <= round(carried) <= 8
    late = {row.variant for row in rows if row.metric == "emulator's lateness p95" and row.bound}
    assert late == set(rates)


@two_cores
def test_of_a_mixture_only_streamed_layers_need_all_experts() -> None:
    bench = PlacementBench(
        MIXTURE, "mixture", ways=("stream", "mlp"), memory_shares=(0.5,), step_tokens=2, rounds=2
    )
    rows = [row for row in run_placement(bench, lambda _: None) if row.metric.startswith("decode")]
    assert all("8 layers of mixture's shape" in row.case and row.value > 0 for row in rows)
    bounds = {row.variant: row.bound or 0 for row in rows}
    assert list(bounds) == ["paced stream", "paced mlp"]
    # two of sixteen experts, from memory that is not slower than the link
    assert bounds["paced mlp"] > 3 * bounds["paced stream"]


def test_more_layers_than_the_model_has_are_refused() -> None:
    with pytest.raises(ConfigError, match="narrow has 8 layers, not 9"):
        run_placement(PlacementBench(NARROW, "narrow", layers=9), lambda _: None)

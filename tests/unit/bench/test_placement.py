"""The bench of weights that do not fit: what is measured, and the chain that it is held against."""

import os
from dataclasses import replace

import pytest

from tandem.bench.placement import LLAMA_8B, WAYS, PlacementBench, run_placement
from tandem.kernels import native
from tandem.spec.hardware_file import load_hardware

NARROW = replace(
    LLAMA_8B, num_layers=8, vocab_size=2048, hidden_size=256, intermediate_size=1024,
    num_heads=4, num_kv_heads=2, head_dim=64,
)  # fmt: skip
LAYER_BYTES = 2 * (256 * 256 * 2 + 256 * 128 * 2 + 3 * 256 * 1024)


@pytest.mark.skipif(
    not native.available() or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
def test_every_way_is_held_against_its_chain() -> None:
    cores = os.sched_getaffinity(0)
    told: list[str] = []
    bench = PlacementBench(model=NARROW, memory_shares=(0.9,), step_tokens=2, rounds=2)
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

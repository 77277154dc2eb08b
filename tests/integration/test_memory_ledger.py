"""The ledger of a running engine: everything is entered, and nothing grows after the warm-up."""

from dataclasses import replace

import pytest
from tests.support.script import run_all

from tandem.engine.building.build import build_engine_core
from tandem.engine.core import EngineCore
from tandem.engine.stats import EngineStats, MemoryRow
from tandem.memory.ledger import LocationTotals
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

CONFIG = EngineConfig(
    "demo",
    accelerator="emulated:exact,seed=3",
    gpu_memory="64MiB",
    cpu_memory="64MiB",
    dtype="float32",
    block_size=16,
    max_model_len=300,
    max_num_seqs=4,
    max_num_batched_tokens=128,
)
GREEDY = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
SAMPLINGS = (
    GREEDY,
    replace(GREEDY, logprobs=20, max_tokens=20),
    replace(GREEDY, temperature=1.0, top_p=0.9, top_k=30, min_p=0.1),
    replace(GREEDY, repetition_penalty=1.2, logit_bias=((5, 2.0),)),
)


def serve(core: EngineCore) -> EngineStats:
    requests = [
        EngineRequest(str(i), tuple((7 * i + 3 * j) % 500 + 5 for j in range(20 + 70 * (i % 4))), p)
        for i, p in enumerate(SAMPLINGS * 3)
    ]
    results = run_all(core, requests)
    assert all(len(result.token_ids) >= 8 for result in results.values())
    return core.stats()


def totals(stats: EngineStats, location: str) -> LocationTotals:
    return next(each for each in stats.memory_totals if each.location == location)


def row(stats: EngineStats, location: str, label: str) -> MemoryRow:
    return next(r for r in stats.memory if (r.location, r.label) == (location, label))


@pytest.mark.parametrize(
    ("strategy", "placement"),
    [
        ("gpu-only", "device"),
        ("ride-along", "split"),
        ("rendezvous", "split"),
        ("asymmetric", "split"),
    ],
)
def test_nothing_on_the_device_grows_after_the_warm_up(strategy: str, placement: str) -> None:
    config = replace(CONFIG, strategy=strategy, kv_placement=placement)
    core = build_engine_core(config, check=True)
    before = totals(core.stats(), "device")
    assert before.grown_bytes == 0
    assert before.peak_bytes is not None
    assert 0 < before.peak_bytes <= (before.capacity_bytes or 0)
    stats = serve(core)
    assert totals(stats, "device").grown_bytes == 0
    workspace = row(stats, "device", "workspace")
    assert workspace.actual_bytes is not None
    assert workspace.actual_bytes <= workspace.predicted_bytes <= 1.25 * workspace.actual_bytes
    core.close()


def test_growth_is_told_where_the_warm_up_was_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandem.engine.building.parts.run_largest_steps", lambda *args: 0)
    core = build_engine_core(replace(CONFIG, strategy="gpu-only"), check=True)
    grown = totals(serve(core), "device").grown_bytes
    assert grown is not None
    assert grown > 0
    core.close()


def test_every_user_of_memory_is_entered_with_what_it_really_took() -> None:
    core = build_engine_core(replace(CONFIG, kv_placement="split"), check=True)
    stats = serve(core)
    labels = {(r.location, r.label) for r in stats.memory}
    assert labels == {
        ("device", "weights"),
        ("device", "workspace"),
        ("device", "slot table"),
        ("device", "kv pool"),
        ("host", "kv pool"),
        ("host", "process"),
        ("host", "staging"),
        ("host", "libraries"),
        ("host", "kept by malloc"),
        ("host", "emulation"),
        ("host", "kernel"),
    }
    staging = row(stats, "host", "staging")
    assert staging.actual_bytes is not None
    assert 0 < staging.actual_bytes <= staging.predicted_bytes
    assert row(stats, "device", "slot table").actual_bytes == 8 * CONFIG.max_num_seqs
    process = row(stats, "host", "process").actual_bytes
    assert process is not None
    assert process > 50 << 20
    host = totals(stats, "host").peak_bytes
    assert host is not None
    assert host >= process
    core.close()


def test_on_the_host_alone_activations_are_measured_too() -> None:
    config = replace(CONFIG, accelerator="none", gpu_memory="auto", cpu_memory="256MiB")
    core = build_engine_core(config, check=True)
    stats = serve(core)
    workspace = row(stats, "host", "workspace")
    assert workspace.actual_bytes is not None
    assert 0 < workspace.actual_bytes <= workspace.predicted_bytes
    assert totals(stats, "host").grown_bytes is None
    core.close()

"""The demo model on an accelerator that cannot hold it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.script import run_all

from tandem.engine.build import build_engine_core
from tandem.engine.stats import EngineStats
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

CONFIG = EngineConfig(
    "demo",
    accelerator="emulated:exact,seed=5",
    gpu_memory="64MiB",
    cpu_memory="64MiB",
    block_size=16,
    max_model_len=200,
    max_num_seqs=4,
    max_num_batched_tokens=64,
)
GREEDY = SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)


def serve(config: EngineConfig) -> tuple[dict[str, list[int]], EngineStats]:
    prompts = [tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 40 * i)) for i in range(4)]
    core = build_engine_core(config, check=True)
    results = run_all(core, [EngineRequest(str(i), p, GREEDY) for i, p in enumerate(prompts)])
    stats = core.stats()
    core.close()
    return {name: result.token_ids for name, result in results.items()}, stats


@pytest.mark.parametrize("dtype", ["auto", "float32"])
@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along", "rendezvous"])
def test_tokens_are_the_same_and_memory_is_kept(dtype: str, strategy: str) -> None:
    config = replace(CONFIG, dtype=dtype, strategy=strategy)
    expected, ample = serve(config)
    scarce = "8MiB" if dtype == "auto" else "14MiB"
    tokens, stats = serve(replace(config, gpu_memory=scarce))
    assert tokens == expected
    assert not any("streamed" in note for note in ample.notes)
    assert any("streamed" in note for note in stats.notes)
    rows = [row for row in stats.memory if row.label == "weights"]
    assert {row.location for row in rows} == {"device", "host"}
    assert all(row.actual_bytes == row.predicted_bytes for row in rows)
    device = next(each for each in stats.memory_totals if each.location == "device")
    assert device.peak_bytes is not None
    assert device.peak_bytes <= (device.capacity_bytes or 0)
    assert device.grown_bytes == 0


def test_a_file_overrides_the_choice(tmp_path: Path) -> None:
    expected, _ = serve(CONFIG)
    runs = [{"first_layer": 1, "last_layer": 4, "home": "streamed"}]
    path = tmp_path / "placement.json"
    path.write_text(json.dumps({"layers": runs}))
    tokens, stats = serve(replace(CONFIG, placement=str(path)))
    assert tokens == expected
    assert any("4 of 6 layers" in note for note in stats.notes)

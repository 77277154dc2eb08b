"""Plans of online cells beside what was executed."""

from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.gpu import online_prediction
from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.cells import Shape
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import ModelFolder
from benchmarks.gpu.online_prediction import add_predictions
from benchmarks.gpu.scale import Scale
from benchmarks.gpu.tiny_scale import tiny
from tests.support import profiles

from tandem.bench.records import BenchRow
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType

CASE = "a cell"


@pytest.fixture
def found(tmp_path: Path) -> Findings:
    return Findings("online", "", {}, tmp_path / "online.json")


def predict(found: Findings, gpu_memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        online_prediction, "stored_profile", lambda: profiles.profile(accelerator=True)
    )
    monkeypatch.setattr(online_prediction, "steady_tokens_per_s", lambda *_: 50.0)
    monkeypatch.setattr(Scale, "dtype", DType.FLOAT16)
    scale = replace(tiny(), prompt_tokens=100, new_tokens=50)
    with ModelFolder(Shape("llama-3.1-8b", {"num_hidden_layers": 4}), DType.FLOAT16) as model:
        config = EngineConfig(
            str(model.path), gpu_memory=gpu_memory, cpu_memory="4GiB", max_num_batched_tokens=512
        )
        add_predictions(CASE, ("gpu-only",), config, model.spec, scale, found)


def test_the_gpu_alone_is_what_it_was_in_the_mean_beside_others(
    found: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.add(BenchRow(CASE, "gpu-only, beside auto", "throughput", 100.0, "tokens/s"))
    predict(found, "8GiB", monkeypatch)
    ratios = {row.metric: row for row in found.rows if row.variant == "gpu-only"}
    assert ratios["simulated over executed"].value == 0.5
    assert ratios["predicted over executed"].value > 0
    errors = {row.metric: row.value for row in found.rows if row.variant == "all"}
    assert errors["median error, simulated"] == 0.5
    assert errors.keys() == {"median error, predicted", "median error, simulated"}


def test_what_was_not_executed_or_does_not_fit_is_not_predicted(
    found: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CaseError):
        predict(found, "8GiB", monkeypatch)
    found.add(BenchRow(CASE, "gpu-only, beside auto", "throughput", 100.0, "tokens/s"))
    with pytest.raises(CaseError):
        predict(found, "1GiB", monkeypatch)
    assert not [row for row in found.rows if "over executed" in row.metric]

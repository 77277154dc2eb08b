"""`--trace`: what every kind of executor writes, through commands and the engine's process."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.paced import TINY
from tests.integration.conftest import start_server

from tandem.cli.main import main
from tandem.engine.building import parts
from tandem.engine.building.build import build_engine_core
from tandem.engine.building.paced import build_paced_core
from tandem.engine.core import EngineCore
from tandem.kernels import native
from tandem.plan.program import Queue
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import load_hardware
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

ROWS = ["engine loop", "accel", "h2d", "d2h", "weights", "disk", "cpu"]
GENERATE = ("generate", "demo", "--prompt", "Once", "--max-tokens", "4", "--temperature", "0")
ON_HOST = ("--accelerator", "none")
Event = dict[str, Any]


def spans_by_row(events: list[Event]) -> dict[str, list[Event]]:
    """Spans of each row, by its name, in the order in which they begin."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert list(names.values()) == ROWS
    rows: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[names[event["tid"]]].append(event)
    for spans in rows.values():
        spans.sort(key=lambda span: (span["ts"], span["ts"] + span["dur"]))
        for before, after in pairwise(spans):
            assert after["ts"] >= before["ts"] + before["dur"] - 0.002, (before, after)
    return rows


def serve(core: EngineCore, requests: int = 3) -> None:
    for number in range(requests):
        params = SamplingParams(max_tokens=6, temperature=0.0, ignore_eos=True)
        core.add_request(EngineRequest(str(number), tuple(range(2, 40)), params))
    while core.has_work():
        core.step()
    core.close()


def paced(tmp_path: Path, strategy: str) -> list[Event]:
    config = EngineConfig(
        "tiny",
        dtype="float32",
        strategy=strategy,
        kv_placement="device" if strategy == "gpu-only" else "host",
        gpu_memory="64MiB",
        cpu_memory="16MiB",
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        trace=str(tmp_path / "trace.json"),
    )
    engine = build_paced_core(
        config,
        TINY,
        load_hardware("small"),
        clock=VirtualClock(),
        pool=VirtualPool(lambda task: 50e-6),
    )
    serve(engine.core)
    return json.loads((tmp_path / "trace.json").read_text())


@pytest.mark.parametrize(
    "strategy", ["gpu-only", "ride-along", "rendezvous", "asymmetric", "symmetric"]
)
def test_a_paced_engine_writes_its_virtual_times(tmp_path: Path, strategy: str) -> None:
    events = paced(tmp_path, strategy)
    rows = spans_by_row(events)
    stages = Counter(span["name"] for span in rows["accel"])
    sweeps = stages["embed"] if strategy == "gpu-only" else stages["pre 1"]
    assert sweeps > 3
    assert stages["post 2"]
    pre = next(span for span in rows["accel"] if span["name"] == "pre 0")
    assert pre["args"]["lanes"] == ["main"]
    assert pre["args"]["tokens"] == 38 + 26  # a whole prompt, and what a step leaves for the next
    assert pre["args"]["rows"] == 2
    assert (pre["args"]["layer"], pre["args"]["program"]) == (0, "sweep")
    counters = {event["name"] for event in events if event["ph"] == "C"}
    if strategy == "gpu-only":
        assert "cpu" not in rows
        assert counters == {"accelerator idle share"}
    else:
        attended = [span for span in rows["cpu"] if span["name"].startswith("attend ")]
        lanes = {lane for span in attended for lane in span["args"]["lanes"]}
        assert ("cohort" in " ".join(lanes)) == (strategy != "ride-along")
        assert {span["dur"] for span in attended} >= {50.0}
        assert counters == {"accelerator idle share", "CPU attention hidden"}


def test_the_exact_emulator_writes_every_operation(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    config = EngineConfig(
        "demo",
        accelerator="emulated",
        kv_placement="host",
        strategy="ride-along",
        max_model_len=128,
        cpu_memory="512MiB",
        trace=str(path),
    )
    serve(build_engine_core(config))
    rows = spans_by_row(json.loads(path.read_text()))
    assert {"engine loop", "accel", "h2d", "d2h", "cpu"} == set(rows)
    names = Counter(span["name"] for span in rows["accel"])
    assert names["pre 0"] == names["post 0"] == names["embed"] == names["head"] > 5
    assert {"schedule", "submit", "observe"} <= {span["name"] for span in rows["engine loop"]}


def test_a_command_writes_whole_layers_as_one_span(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    assert main([*GENERATE, *ON_HOST, "--trace", str(path)]) == 0
    rows = spans_by_row(json.loads(path.read_text()))
    names = Counter(span["name"] for span in rows["accel"])
    assert names["layers 0 to 5" if native.available() else "pre 0"] == 4


def test_the_servers_engine_writes_as_it_goes_from_its_own_process(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    running = start_server("demo", *ON_HOST, "--max-model-len", "256", "--trace", str(path))
    with running.process:
        running.openai().completions.create(model="demo", prompt="Once", max_tokens=5)
        assert running.openai().models.list()
        before = spans_by_row(json.loads(path.read_text() + "]"))  # what a kill would leave
        running.process.terminate()
    rows = spans_by_row(json.loads(path.read_text()))
    for heads in ([s for s in each["accel"] if s["name"] == "head"] for each in (before, rows)):
        assert len(heads) == 5


def test_a_path_that_cannot_be_written_is_one_line_before_anything_is_loaded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "load_reported", None)
    assert main([*GENERATE, *ON_HOST, "--trace", "/none/trace.json"]) == 2
    message = "cannot write /none/trace.json: No such file or directory; name another file"
    assert capsys.readouterr() == ("", f"tandem: error: {message}\n")


def test_that_the_limit_was_reached_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "trace.json"
    assert main([*GENERATE, *ON_HOST, "--trace", str(path), "--trace-limit", "2KiB"]) == 0
    assert f"the trace {path} has reached 2.0 KiB; what follows is not in it" in caplog.text
    assert json.loads(path.read_text())[-1]["name"] == "limit of 2.0 KiB"


def test_a_limit_that_is_no_size_is_refused() -> None:
    with pytest.raises(ConfigError, match="--trace-limit"):
        EngineConfig("demo", trace_limit="much")


def test_queues_are_all_shown() -> None:
    assert sorted(ROWS[1:]) == sorted(queue.value for queue in Queue)

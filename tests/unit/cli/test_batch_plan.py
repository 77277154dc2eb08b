"""`tandem batch --plan auto`, over an engine without a model."""

import errno
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import request_line
from tests.fakes.core import CRASH_TOKEN
from tests.support.profiles import KERNELS, MACHINE, profile
from tests.unit.cli.conftest import Commands, Ran

from tandem.cli.batch_plan import unfitting_note
from tandem.devices import this_machine
from tandem.jobs.counts import Counts
from tandem.jobs.lengths import JobLengths
from tandem.plan.plan_file import read_plan
from tandem.profiling.profile_file import profile_path, write_profile
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.workload import RequestShape

EMULATED = ("--accelerator", "emulated", "--gpu-memory", "72MiB", "--cpu-memory", "64MiB")
STEPS = ("--max-num-batched-tokens", "64")
Batch = Callable[..., Ran]


@pytest.fixture
def batch(commands: Commands, tmp_path: Path) -> Batch:
    def run(*args: str) -> Ran:
        files = ("-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"))
        return commands.run("batch", *files, "--no-isolate-engine", "--plan", "auto", *args)

    return run


def write(folder: Path, *bodies: dict[str, Any]) -> None:
    lines = (request_line(f"r{n}", body=body) for n, body in enumerate(bodies))
    (folder / "in.jsonl").write_bytes(b"".join(lines))


def body(prompt_tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt": [7] * prompt_tokens, "max_tokens": 4, **more}


def test_a_job_is_planned_for_by_its_lengths(
    batch: Batch, commands: Commands, tmp_path: Path
) -> None:
    write(tmp_path, *(body(10 + n) for n in range(6)), body(10, max_tokens=30))
    ran = batch(*EMULATED, *STEPS)
    assert ran.status == 0, ran.err
    (config,) = commands.configs
    path = tmp_path / "out.jsonl.plan.json"
    planned = read_plan(path)
    assert (config.plan, config.max_num_seqs) == (str(path), planned.blocks.block_rows)
    assert planned.blocks.max_model_len == 40
    assert planned.blocks.prefill_tokens == 64
    assert planned.blocks.accelerator.capacity_bytes == 72 << 20
    assert "plan for 7 requests of 12 tokens and up to 8 more in the mean: " in ran.err
    assert re.search(r"plan: at most .* output tokens/s, limited by \w+", ran.err)
    assert re.search(r"plan: accelerator: weights .* of 72.0 MiB; host: .* of 64.0 MiB", ran.err)
    assert "counted as max_tokens allows, at most" in ran.err


def test_a_real_accelerator_is_planned_for_as_it_was_measured(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(this_machine, "this_machine", lambda environment: MACHINE)
    monkeypatch.setattr(this_machine, "code_digest", lambda: KERNELS)
    write_profile(profile(accelerator=True), profile_path(tmp_path / "cache" / "tandem", MACHINE))
    write(tmp_path, *(body(10 + n) for n in range(6)))
    ran = batch("--accelerator", "cuda", *EMULATED[2:], *STEPS, "--dtype", "float16")
    assert ran.status == 0, ran.err
    planned = read_plan(tmp_path / "out.jsonl.plan.json")
    assert "Test card" in planned.hardware
    assert (planned.dtype, planned.kv_cache_dtype) == ("float16", "float16")
    assert planned.blocks.accelerator.capacity_bytes == 72 << 20
    assert planned.blocks.host.capacity_bytes == 64 << 20
    assert "plan: Predicted from what was measured here on 2026-01-02" in ran.err


def test_a_resumed_job_is_planned_for_by_the_lines_that_are_left(
    batch: Batch, commands: Commands, tmp_path: Path
) -> None:
    write(tmp_path, body(10, n=0), body(12), {"prompt": [CRASH_TOKEN, 7, 7], "max_tokens": 3})
    first = batch(*EMULATED, *STEPS)
    assert first.status == 2
    assert "plan for 2 requests" in first.err
    assert "too long: 1, left out" in first.err
    (tmp_path / "alias.json").symlink_to(tmp_path / "out.jsonl.plan.json")
    for name in ("out.jsonl.plan.json", "alias.json"):
        refused = batch("--plan", str(tmp_path / name), *EMULATED)
        assert refused.status == 2
        assert "resume with --plan auto" in refused.err, name
    second = batch(*EMULATED, *STEPS)
    left = 3 - int(re.findall(r"resuming: (\d+) of 3", second.err)[0])
    assert f"plan for {left} request" in second.err
    assert "left out" not in second.err


def test_lines_that_all_cannot_run_need_no_plan(
    batch: Batch, commands: Commands, tmp_path: Path
) -> None:
    write(tmp_path, body(10, n=0))
    assert batch(*EMULATED).status == 3
    assert [config.plan for config in commands.configs] == [None]


def test_what_may_fill_the_context_is_bounded_by_the_longest_request(
    batch: Batch, tmp_path: Path
) -> None:
    (tmp_path / "in.jsonl").write_bytes(
        request_line(
            "a",
            url="/v1/chat/completions",
            body={"messages": [{"role": "user", "content": "Hi"}]},
        )
    )
    ran = batch(*EMULATED, *STEPS, "--max-model-len", "100")
    assert ran.status == 0, ran.err
    assert "1 of 1 requests have no max_tokens" in ran.err
    assert read_plan(tmp_path / "out.jsonl.plan.json").blocks.max_model_len == 100


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--accelerator", "none"), "--plan auto plans what an accelerator and its host do toge"),
        (("--accelerator", "cuda"), "tandem profile"),
        ((*EMULATED, "--max-num-seqs", "4"), "--max-num-seqs has no meaning beside --plan auto"),
        ((*EMULATED, "--cpu-kv-dtype", "int8"), "--cpu-kv-dtype has no meaning beside --plan auto"),
        ((*EMULATED, "--placement", "p.json"), "--placement has no meaning beside --plan auto"),
        (("--accelerator", "cuda", "--gpu-margin", "2GiB"), "say with --gpu-memory how much may"),
        ((*EMULATED, "--strategy", "neo"), "--strategy neo has no meaning with --plan auto"),
        (("--accelerator", "emulated", "--gpu-memory", "9MiB"), "--plan auto: no block of request"),
    ],
)
def test_what_cannot_be_planned_is_one_line_and_leaves_no_file(
    batch: Batch,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    args: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write(tmp_path, body(10))
    ran = batch(*args)
    assert ran.status == 2
    (error,) = [line for line in ran.err.splitlines() if not line.startswith("tandem: note: ")]
    assert message in error
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_an_engine_that_cannot_be_loaded_leaves_no_plan_but_one_that_was_there(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("no engine; make one")

    def run_without_engine(*args: str) -> None:
        with monkeypatch.context() as broken:
            broken.setattr("tandem.jobs.batch.open_service", fail)
            ran = batch(*EMULATED, *STEPS, *args)
        assert (ran.status, "no engine; make one" in ran.err) == (2, True), ran.err

    write(tmp_path, body(10))
    run_without_engine()
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    assert batch(*EMULATED, *STEPS).status == 0
    plan = tmp_path / "out.jsonl.plan.json"
    made = plan.read_bytes()
    for again in ((), ("--plan", str(plan))):
        run_without_engine("--restart", *again)
        assert plan.read_bytes() == made


def test_lines_longer_than_a_plan_s_are_told_as_it_begins(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, body(10))
    assert batch(*EMULATED, *STEPS).status == 0
    plan = (tmp_path / "out.jsonl.plan.json").rename(tmp_path / "plan.json")
    write(tmp_path, body(10), body(11), body(5, max_tokens=30))
    given = ("--accelerator", "emulated", "--plan", str(plan), "--restart")
    ran = batch(*given)
    said = "2 of 3 lines will fail: with max_tokens they are longer than the 14 tokens of the plan"
    assert said in ran.err
    write(tmp_path, *[body(10)] * 256, body(11))
    assert "will fail" not in batch(*given).err  # of many, only the first are looked at
    write(tmp_path, body(11), *[body(10)] * 256)
    assert "1 of the first 256 lines will fail" in batch(*given).err


def test_a_plan_that_cannot_be_written_is_one_line_and_leaves_the_one_before(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write(tmp_path, body(10))
    plan = tmp_path / "out.jsonl.plan.json"
    plan.write_text("before", "utf-8")
    monkeypatch.setattr(os, "replace", fail)
    ran = batch(*EMULATED, *STEPS)
    assert ran.status == 2
    assert f"cannot write {plan}: No space left on device; name another --output-file" in ran.err
    assert plan.read_text("utf-8") == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"in.jsonl", plan.name}


@pytest.mark.parametrize("command", [("serve", "demo"), ("generate", "--prompt", "Hi")])
def test_other_commands_do_not_know_all_requests(
    commands: Commands, command: tuple[str, ...]
) -> None:
    ran = commands.run(*command, "--plan", "auto")
    assert ran.status == 2
    assert "--plan auto plans for all requests of a job, which only tandem batch knows" in ran.err


@dataclass
class _Job:
    """As much of a job as the note is made from."""

    shapes: tuple[RequestShape, ...]
    num_lines: int
    counts: Counts
    open_tokens: int = 0

    def lengths(self, progress: object, most_lines: int) -> JobLengths:
        return JobLengths(self.shapes[:most_lines], open_tokens=self.open_tokens)


@pytest.mark.parametrize(
    ("weights", "rows", "blocks", "said"),
    [
        (0, 8, 10, None),
        (3 << 20, 8, 10, "3.0 MiB of weights do not fit the accelerator; --plan auto"),
        (0, 8, 9, "KV of 8 requests at once do not fit the accelerator; --plan auto"),
        (3 << 20, 8, 9, "3.0 MiB of weights and KV of 8 requests at once do not fit"),
        (0, 7, 9, None),
    ],
)
def test_what_does_not_fit_is_noted_without_a_plan(
    weights: int, rows: int, blocks: int, said: str | None
) -> None:
    job: Any = _Job((RequestShape(12, 8),) * 3, 100, Counts())
    stats = {
        "tiers": [{"location": "device", "total_blocks": blocks, "block_size": 16}],
        "memory": [
            {"location": "host", "label": "weights", "predicted_bytes": weights},
            {"location": "device", "label": "weights", "predicted_bytes": 5},
        ],
    }
    config = EngineConfig("demo", max_num_seqs=rows)
    note = unfitting_note(job, config, stats)
    assert note is None if said is None else note is not None and note.startswith(said)
    job.open_tokens = 3 * 8  # only of the prompts is it known that they are so long
    only = unfitting_note(job, config, stats)
    assert (only is None) == (weights == 0)
    assert only is None or "KV" not in only
    stats["tiers"][0]["location"] = "host"
    assert unfitting_note(job, config, stats) is None


def test_a_plan_is_made_by_a_batch_file_s_lengths(commands: Commands, tmp_path: Path) -> None:
    write(tmp_path, *(body(10 + n, model="any") for n in range(3)))
    trace = str(tmp_path / "in.jsonl")
    words = ("plan", "demo", "--accelerator", "a10g", "--offline", "--json", "--trace", trace)
    ran = commands.run(*words)
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)["workload"]
    assert (found["requests"], found["prompt_tokens"], found["longest_tokens"]) == (3, 11, 16)


@pytest.mark.parametrize(
    ("model", "line", "message"),
    [
        ("demo", request_line("b", method="GET"), "line 3: method must be 'POST'"),
        ("demo", b"{nonsense\n", "line 3: the line is not JSON"),
        ("demo", request_line("b", body={"prompt": [7], "max_tokens": 9999}), "line 3: 1 prompt"),
        (
            "opt-13b",
            b"",
            "its prompts are counted by the model's own tokenizer: '",
        ),
    ],
)
def test_a_batch_file_s_faults_are_named(
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: str,
    line: bytes,
    message: str,
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    path = tmp_path / "in.jsonl"
    path.write_bytes(request_line("a") + b"\n" + line)
    ran = commands.run("plan", model, "--accelerator", "a10g", "--offline", "--trace", str(path))
    assert ran.status == 2
    assert f"trace {path}: {message}" in ran.err
    assert len(ran.err.splitlines()) == 1

import contextlib
import json
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import line_numbers, read_results, request_line
from tests.fakes.core import CRASH_TOKEN, FOREVER_TOKEN
from tests.unit.cli.conftest import SAID, Commands, Ran

from tandem.cli.job_progress import describe_counts, job_progress
from tandem.jobs.counts import Counts
from tandem.jobs.pace import Status
from tandem.jobs.runner import JobRunner
from tandem.runtime.measures import OverlapTotals
from tandem.spec.errors import ConfigError

CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
Batch = Callable[..., Ran]


@pytest.fixture
def batch(commands: Commands, tmp_path: Path) -> Batch:
    def run(*args: str) -> Ran:
        files = ("-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"))
        return commands.run("batch", *files, "--no-isolate-engine", *args)

    return run


def write(folder: Path, *lines: bytes) -> None:
    (folder / "in.jsonl").write_bytes(b"".join(lines))


def results(folder: Path) -> dict[str, Any]:
    return {result["custom_id"]: result for result in read_results(folder / "out.jsonl")}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--ttft-bound", "2s"), "--ttft-bound has no meaning for a file of requests"),
        (("--max-num-queued-reqs", "3"), "--max-num-queued-reqs 3 has no meaning for a file of"),
    ],
)
def test_bounds_for_those_who_wait_are_refused(
    batch: Batch, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    write(tmp_path, request_line("a", body={"prompt": "Hi", "model": "demo"}))
    ran = batch(*args)
    assert ran.status == 2
    assert message in ran.err
    assert not (tmp_path / "out.jsonl").exists()


def test_both_kinds_of_request(batch: Batch, tmp_path: Path) -> None:
    write(
        tmp_path,
        request_line("a", body={"prompt": "Hi", "model": "demo", "max_tokens": 30}),
        request_line("b", url="/v1/chat/completions", body=CHAT),
    )
    ran = batch()
    assert (ran.status, ran.out) == (0, "")
    assert "2 answered, 0 failed" in ran.err
    found = results(tmp_path)
    completion, chat = (found[name]["response"]["body"] for name in "ab")
    assert completion["object"] == "text_completion"
    assert completion["choices"][0]["text"] == SAID
    assert chat["object"] == "chat.completion"
    assert chat["choices"][0]["message"]["content"] == SAID
    assert [found[name]["error"] for name in "ab"] == [None, None]


def test_how_accelerator_and_cpu_overlapped_is_told_at_the_end(
    batch: Batch, commands: Commands, tmp_path: Path
) -> None:
    commands.core.overlap = OverlapTotals(9, 8.0, 7.0, 4.0, 3.0)
    write(tmp_path, request_line("a", body={"prompt": "Hi", "model": "demo", "max_tokens": 3}))
    ran = batch()
    assert ran.status == 0
    assert "the accelerator was idle for 12.5% of the time; 75% of the CPU's attention" in ran.err


def test_what_fails_is_told_by_the_exit_status(batch: Batch, tmp_path: Path) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "streams": {"prompt": "Hi", "stream": True},
        "other model": {"prompt": "Hi", "model": "gpt"},
        "unknown field": {"prompt": "Hi", "frobnicate": 1},
        "out of range": {"prompt": "Hi", "temperature": -1},
        "too long": {"prompt": "word " * 5000},
        "longer than the model": {"prompt": [5] * 600},
    }
    write(tmp_path, request_line("good"), *(request_line(k, body=b) for k, b in bodies.items()))
    ran = batch()
    assert ran.status == 3
    assert "1 answered, 6 failed" in ran.err
    found = results(tmp_path)
    statuses = {name: found[name]["response"]["status_code"] for name in bodies}
    assert statuses == {name: 404 if name == "other model" else 400 for name in bodies}
    errors = {name: found[name]["response"]["body"]["error"] for name in bodies}
    assert errors["other model"]["code"] == "model_not_found"
    assert errors["streams"]["param"] == "stream"
    for name in ("too long", "longer than the model"):
        assert errors[name]["code"] == "context_length_exceeded"


def test_a_served_name(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, request_line("a", body={"prompt": "Hi", "model": "gpt"}))
    assert batch("--served-model-name", "gpt").status == 0
    assert results(tmp_path)["a"]["response"]["body"]["model"] == "gpt"


def test_a_complete_job_has_nothing_to_do(batch: Batch, tmp_path: Path, commands: Commands) -> None:
    write(tmp_path, request_line("a"), b"no request\n")
    assert batch().status == 3
    before = (tmp_path / "out.jsonl").read_bytes()
    ran = batch()
    assert (ran.status, "nothing to do" in ran.err) == (3, True)
    assert (tmp_path / "out.jsonl").read_bytes() == before
    assert len(commands.configs) == 1  # the model was not loaded again


def test_a_complete_job_without_failures_is_a_success_again(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, request_line("a"))
    assert [batch().status, batch().status] == [0, 0]


def test_an_empty_input_needs_no_model(batch: Batch, tmp_path: Path, commands: Commands) -> None:
    write(tmp_path, b"\n\n")
    assert batch().status == 0
    assert commands.configs == []


def test_seeds_come_from_lines(batch: Batch, tmp_path: Path, commands: Commands) -> None:
    """So that a resumed job samples as an undisturbed one."""
    given = request_line("c", body={"prompt": "Hi", "seed": 7})
    write(tmp_path, request_line("a"), request_line("b"), given)
    batch()
    seeds = [request.sampling.seed for request in commands.core.requests]
    assert seeds[0] is not None
    assert (len(set(seeds)), seeds[2]) == (3, 7)
    commands.core.requests.clear()
    write(tmp_path, b"\n", request_line("a"), request_line("b"))
    batch("--restart")
    again = [request.sampling.seed for request in commands.core.requests]
    assert again[0] == seeds[1]  # it is on line 2 now


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (["--seed", "1"], "--seed"),
        (["--dtype", "float32"], "--dtype"),
        (["--served-model-name", "x"], "--served-model-name"),
        (["--chat-template", "template.jinja"], "--chat-template"),
        (["input"], "input"),
    ],
)
def test_another_job_is_refused(
    batch: Batch,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: list[str],
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("template.jinja").write_text("{{ messages[0].content }}")
    write(tmp_path, request_line("a"))
    assert batch().status == 0
    if change == ["input"]:
        write(tmp_path, request_line("A"))
        change = []
    ran = batch(*change)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert f"another {name};" in ran.err
    assert batch(*change, "--restart").status == 0


def test_an_engine_that_cannot_be_loaded_leaves_no_files_of_a_job_that_begins(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ConfigError("no engine; make one")

    write(tmp_path, request_line("a"))
    with monkeypatch.context() as broken:
        broken.setattr("tandem.jobs.batch.open_service", fail)
        ran = batch()
    assert (ran.status, [path.name for path in tmp_path.iterdir()]) == (2, ["in.jsonl"])
    assert "no engine; make one" in ran.err
    assert batch().status == 0  # nothing is in its way


def test_other_memory_is_no_other_job(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, request_line("a"))
    assert batch().status == 0
    assert "nothing to do" in batch("--cpu-memory", "1GiB", "--max-num-seqs", "3").err


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (("-i", "-", "-o", "out"), "standard input"),
        (("-i", "no", "-o", "out"), "cannot read --input-file"),
        (("-i", "in", "-o", "in"), "are the same file"),
        (("-i", "in", "-o", "link"), "are the same file"),
        (("-i", "in.journal", "-o", "in"), "are the same file"),
        (("-i", "in", "-o", "no/out"), "cannot write --output-file"),
        (("-i", "in", "-o", "/dev/null"), "not a regular file"),
        (("-i", "in", "-o", "precious"), "no journal"),
        (("-i", "in"), "Missing option"),
    ],
)
def test_files_that_do_not_fit(
    commands: Commands,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in").write_bytes(request_line("a"))
    Path("in.journal").write_bytes(request_line("a"))
    Path("link").symlink_to("in")
    Path("precious").write_text("1\n")
    before = Path("in").read_bytes()
    ran = commands.run("batch", *files)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert message in ran.err
    assert (Path("in").read_bytes(), Path("precious").read_text()) == (before, "1\n")
    assert commands.configs == []


def test_an_unknown_model_leaves_no_files(commands: Commands, tmp_path: Path) -> None:
    write(tmp_path, request_line("a"))
    args = ("-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl"))
    assert commands.run("batch", "no/such/model", *args).status == 2
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_long_line(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, request_line("a"), request_line("b", body={"prompt": "x" * 5000}))
    assert batch("--max-line-size", "1KiB").status == 3
    faults = [result["error"] for result in read_results(tmp_path / "out.jsonl")]
    assert [fault["code"] for fault in faults if fault] == ["line_too_long"]
    assert "--max-line-size" in str(faults)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--max-line-size", "0", "lets nothing through"),
        ("--served-model-name", "", "name is empty"),
    ],
)
def test_what_would_fail_every_line_is_refused(
    batch: Batch, tmp_path: Path, flag: str, value: str, message: str
) -> None:
    write(tmp_path, request_line("a"))
    ran = batch(flag, value)
    assert (ran.status, ran.err.count("\n"), message in ran.err) == (2, 1, True)
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopping(
    batch: Batch,
    tmp_path: Path,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    status: int,
) -> None:
    """Line 2 runs for ever; a signal comes once it runs alone, and a second one if that drains."""
    stuck = request_line("stuck", body={"prompt": [FOREVER_TOKEN, 5]})
    write(tmp_path, request_line("a"), stuck, request_line("b"))

    def is_alone() -> bool:
        path = tmp_path / "out.jsonl"
        return path.exists() and path.read_bytes().count(b"\n") == 2

    def send() -> None:
        os.kill(os.getpid(), number)

    def drain_and_send(runner: JobRunner) -> int:
        num_running = drain(runner)
        send()
        return num_running

    drain = JobRunner.drain
    monkeypatch.setattr(JobRunner, "drain", drain_and_send)
    tell_when(is_alone, send, commands)
    ran = batch()
    assert ran.status == status
    assert "stopped after 2 of 3 lines" in ran.err
    assert "same command" in ran.err
    told = "stopping: 1 line is being answered and will be finished; Ctrl-C again drops it"
    assert (told in ran.err) == (number == signal.SIGINT)
    assert sorted(line_numbers(read_results(tmp_path / "out.jsonl"))) == [1, 3]


def test_draining(batch: Batch, tmp_path: Path, commands: Commands) -> None:
    """The signal comes while the first lines run; they are finished, and no other begun."""
    commands.core.step_s = 0.01
    write(tmp_path, *(request_line(f"r{n}", body={"prompt": "Hi"}) for n in range(40)))
    tell_when(
        lambda: len(commands.core.requests) >= 2,
        lambda: os.kill(os.getpid(), signal.SIGINT),
        commands,
    )
    ran = batch("--max-num-seqs", "1")
    assert ran.status == 130
    assert commands.core.aborted == []
    done = line_numbers(read_results(tmp_path / "out.jsonl"))
    assert len(done) == len(commands.core.requests) < 40
    assert batch("--max-num-seqs", "1").status == 0
    assert sorted(line_numbers(read_results(tmp_path / "out.jsonl"))) == list(range(1, 41))


def test_tokens_per_second_before_a_line_is_finished(
    batch: Batch, tmp_path: Path, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, request_line("long", body={"prompt": [FOREVER_TOKEN, 5]}))
    told: list[Status] = []
    monkeypatch.setattr(
        "tandem.cli.batch.job_progress", lambda: contextlib.nullcontext(told.append)
    )
    tell_when(lambda: bool(told), lambda: os.kill(os.getpid(), signal.SIGTERM), commands)
    assert batch().status == 143
    assert told[0].counts.num_done == told[0].counts.num_output_tokens == 0
    assert told[0].output_tokens_per_s > 0


def test_a_dead_engine(batch: Batch, tmp_path: Path) -> None:
    """What is done is told, and how to go on."""
    write(tmp_path, request_line("a"), request_line("crash", body={"prompt": [CRASH_TOKEN]}))
    ran = batch("--max-num-seqs", "1")
    assert ran.status == 2
    assert re.search(r"stopped after \d of 2 lines: ", ran.err)
    assert "the same command goes on from here" in ran.err
    assert ran.err.splitlines()[-1].startswith("tandem: error: ")


def tell_when(condition: Callable[[], bool], act: Callable[[], None], commands: Commands) -> None:
    """Call `act` after an engine step at which `condition` holds."""
    step, acted = commands.core.step, threading.Event()

    def watched() -> list[Any]:
        outputs = step()
        if not acted.is_set() and condition():
            acted.set()
            act()
        return outputs

    commands.core.step = watched


@pytest.mark.parametrize(("terminal", "term"), [(False, "xterm"), (True, "dumb")])
def test_a_line_a_minute_where_no_bar_can_be_drawn(
    terminal: bool,
    term: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", term)
    now = 0.0
    status = Status(2000, Counts(1200, 34, 0, 0, 0.0), 56.78, 3661.2)
    with job_progress(terminal, lambda: now) as report:
        for second in range(0, 125):
            now = float(second)
            report(status)
    expected = "tandem: 1,234 of 2,000 lines, 34 failed, 56.8 tokens/s, 1:01:01 left\n"
    assert capsys.readouterr().err == 2 * expected


def test_a_bar_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with job_progress(True) as report:
        report(Status(2000, Counts(500), 12.0, 90.0))
    shown = capsys.readouterr().err
    assert "25%" in shown
    assert "12.0 tokens/s, 0:01:30 left" in shown


def test_the_summary() -> None:
    counts = Counts(1000, 2, 30_000, 50_000, 100.0)
    assert describe_counts(counts) == (
        "1,000 answered, 2 failed; 30,000 prompt tokens, 50,000 output tokens, "
        "500.0 tokens/s, 0:01:40"
    )


def test_the_journal_is_beside_the_output(batch: Batch, tmp_path: Path) -> None:
    write(tmp_path, request_line("a"))
    batch()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["in.jsonl", "out.jsonl", "out.jsonl.journal"]
    assert json.loads((tmp_path / "out.jsonl").read_text())["custom_id"] == "a"

"""kill -9 at any moment, and the same command resumes: nothing is lost, nothing done twice."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import line_numbers, read_results, request_line

NUM_KILLS = 100
NUM_LINES = 400
LONGEST_LIFE_S = 0.12
MAX_REDONE = 0.01


class Launcher:
    """Starts jobs in processes of their own, quickly."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.job_process"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._orders, self._news = self._process.stdin, self._process.stdout

    def run(self, order: list[Any], life_s: float) -> int:
        """Run a job, kill it after `life_s`; its exit status."""
        print(json.dumps(order), file=self._orders, flush=True)
        pid = int(self._news.readline())
        if not select.select([self._news], [], [], life_s)[0]:
            os.kill(pid, signal.SIGKILL)
        return int(self._news.readline())

    def close(self) -> None:
        self._orders.close()
        self._process.wait()
        self._news.close()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    started = Launcher()
    yield started
    started.close()


def write_input(path: Path) -> set[int]:
    """Requests among which some lines fail; the numbers of those that do not."""
    lines = [request_line(f"r{number}") for number in range(1, NUM_LINES + 1)]
    lines[50:60] = [b"no request\n"] * 10
    lines[100:200:10] = [request_line("r1")] * 10
    path.write_bytes(b"".join(lines))
    return set(range(1, NUM_LINES + 1)) - set(range(51, 61)) - set(range(101, 201, 10))


@pytest.mark.slow
def test_a_hundred_kills(launcher: Launcher, tmp_path: Path) -> None:
    rng = random.Random(4)
    num_kills = num_answered = num_needed = num_jobs = 0
    while num_kills < NUM_KILLS:
        num_jobs += 1
        folder = tmp_path / str(num_jobs)
        folder.mkdir()
        answerable = write_input(folder / "in.jsonl")
        order = [str(folder / name) for name in ("in.jsonl", "out.jsonl", "engine.log")]
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            kept = whole_lines(folder / "out.jsonl")
            status = launcher.run([*order, rng.randrange(2**32)], rng.uniform(0, LONGEST_LIFE_S))
            num_kills += status == -signal.SIGKILL
            assert (folder / "out.jsonl").read_bytes().startswith(kept) or not kept
        assert status == 0
        results = read_results(folder / "out.jsonl")
        assert sorted(line_numbers(results)) == list(range(1, NUM_LINES + 1))
        answered = {
            n for n, r in zip(line_numbers(results), results, strict=True) if not r["error"]
        }
        assert answered == answerable
        num_answered += len((folder / "engine.log").read_text().splitlines())
        num_needed += len(answerable)
    assert num_answered - num_needed <= MAX_REDONE * num_needed
    assert num_kills > 5 * num_jobs / 2, "most kills came before or after the work"


def whole_lines(path: Path) -> bytes:
    """What of an output must never change again."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


@pytest.mark.parametrize("limit_bytes", [1_000, 60_000])
def test_a_full_disk(tmp_path: Path, limit_bytes: int) -> None:
    """No file may grow beyond a limit; then it may."""
    answerable = write_input(tmp_path / "in.jsonl")
    order = [str(tmp_path / name) for name in ("in.jsonl", "out.jsonl", "engine.log")]
    limited = run_limited(order, limit_bytes)
    assert limited.returncode == 1
    assert "StorageError: cannot write" in limited.stderr
    kept = whole_lines(tmp_path / "out.jsonl")
    done = line_numbers(read_results(tmp_path / "out.jsonl"))
    (tmp_path / "engine.log").unlink(missing_ok=True)
    assert run_limited(order, None).returncode == 0
    results = read_results(tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes().startswith(kept)
    assert sorted(line_numbers(results)) == list(range(1, NUM_LINES + 1))
    answered = [int(line) for line in (tmp_path / "engine.log").read_text().splitlines()]
    assert sorted(answered) == sorted(answerable - set(done))


def run_limited(order: list[str], limit_bytes: int | None) -> "subprocess.CompletedProcess[str]":
    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    program = "import sys; from tests.fakes.job_process import run_job; run_job(*sys.argv[1:4], 1)"
    return subprocess.run(
        [sys.executable, "-c", program, *order],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=60,
    )

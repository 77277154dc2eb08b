"""kill -9 at any moment, and the same command resumes: nothing is lost, nothing done twice."""

import json
import os
import random
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.answerer import line_numbers, read_results, request_line

NUM_KILLS = 100
NUM_LINES = 200
MAX_KILLS_PER_JOB = 8
EARLY_SHARE = 0.2
MAX_REDONE = 0.01


class Launcher:
    """Starts jobs in processes of their own, quickly."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.job_process"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # what is read is not ahead of what `select` sees
        )
        assert self._process.stdin
        assert self._process.stdout
        self._orders, self._news = self._process.stdin, self._process.stdout
        assert self._news.readline() == b"ready\n"

    def run(self, order: list[Any], life_s: float | None, from_open: bool = True) -> int:
        """Run a job; its exit status.

        Args:
            life_s: kill it after so long; None: let it live.
            from_open: its life begins when its files are open, not when its process begins.
        """
        self._orders.write(json.dumps(order).encode() + b"\n")
        pid = int(self._news.readline())
        news = self._news.readline() if from_open else b"open\n"
        if life_s is not None:
            has_news = bool(select.select([self._news], [], [], life_s)[0])
            if not (has_news and from_open):  # the news may be that the files are open
                os.kill(pid, signal.SIGKILL)
        while news == b"open\n":
            news = self._news.readline()
        return int(news)

    def close(self) -> None:
        self._orders.close()
        self._process.wait()
        self._news.close()


@pytest.fixture(scope="module")
def launcher() -> Iterator[Launcher]:
    started = Launcher()
    yield started
    started.close()


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder in memory where there is such a place: a kill cannot tell, and a busy disk can."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


def write_input(path: Path) -> set[int]:
    """Requests among which some lines fail; the numbers of those that do not."""
    lines = [request_line(f"r{number}") for number in range(1, NUM_LINES + 1)]
    lines[50:60] = [b"no request\n"] * 10
    lines[100:200:10] = [request_line("r1")] * 10
    path.write_bytes(b"".join(lines))
    return set(range(1, NUM_LINES + 1)) - set(range(51, 61)) - set(range(101, 201, 10))


@pytest.mark.slow
def test_a_hundred_kills(launcher: Launcher, root: Path) -> None:
    rng = random.Random(4)
    begun_s = time.perf_counter()
    Job(root / "undisturbed").run(launcher, rng, None)
    # A share of a whole run, so that a busy machine kills at the same places.
    longest_life_s = (time.perf_counter() - begun_s) / 10
    jobs: list[Job] = []
    while sum(job.num_kills for job in jobs) < NUM_KILLS:
        jobs.append(Job(root / str(len(jobs))))
        jobs[-1].run(launcher, rng, longest_life_s)
    num_redone = sum(job.num_redone for job in jobs)
    assert num_redone <= MAX_REDONE * sum(len(job.answerable) for job in jobs)
    assert sum(job.num_kills_amid for job in jobs) >= NUM_KILLS / 4


class Job:
    """A job that is killed several times, and checked after each.

    Attributes:
        num_kills_amid: kills of runs that had written results, and had not written all.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        names = ("in.jsonl", "out.jsonl", "engine.log")
        self.input, self.output, self.engine_log = (folder / name for name in names)
        self.answerable = write_input(self.input)
        self.num_kills = self.num_kills_amid = self.num_redone = 0

    def run(self, launcher: Launcher, rng: random.Random, longest_life_s: float | None) -> None:
        """Until it is done."""
        status = -signal.SIGKILL
        while status == -signal.SIGKILL:
            kept = whole_lines(self.output)
            order = [str(path) for path in (self.input, self.output, self.engine_log)]
            life_s = rng.uniform(0, longest_life_s) if longest_life_s else None
            if self.num_kills == MAX_KILLS_PER_JOB:
                life_s = None
            early = rng.random() < EARLY_SHARE
            status = launcher.run([*order, rng.randrange(2**32)], life_s, not early)
            self.num_kills += status == -signal.SIGKILL
            now = whole_lines(self.output)
            assert now.startswith(kept)
            has_advanced = now != kept and now.count(b"\n") < NUM_LINES
            self.num_kills_amid += status == -signal.SIGKILL and has_advanced
        assert status == 0
        self._check()

    def _check(self) -> None:
        results = read_results(self.output)
        numbers = line_numbers(results)
        assert sorted(numbers) == list(range(1, NUM_LINES + 1))
        answered = {n for n, r in zip(numbers, results, strict=True) if not r["error"]}
        assert answered == self.answerable
        self.num_redone = len(self.engine_log.read_text().splitlines()) - len(self.answerable)


def whole_lines(path: Path) -> bytes:
    """What of an output must never change again."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1]


@pytest.mark.parametrize("limit_bytes", [1_000, 30_000])
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

"""`tandem batch` with a real engine: killed, and resumed to the same answers."""

import json
import random
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.docs.pages import environment, tandem
from tests.fakes.answerer import line_numbers, read_results, request_line
from tests.support.command_line import run_here

NUM_LINES = 40
NUM_KILLS = 2


def arguments(folder: Path, output: str) -> tuple[str, ...]:
    files = ("-i", str(folder / "in.jsonl"), "-o", str(folder / output))
    sizes = ("--dtype", "float32", "--max-num-seqs", "4")
    return ("batch", "demo", *files, "--accelerator", "none", *sizes)


def write_input(path: Path) -> None:
    """Prompts that share beginnings; every third is sampled without a seed."""
    bodies = (
        {
            "prompt": "The standard library of Python has " + "many modules and " * (n % 4),
            "max_tokens": 12,
            "temperature": 0.9 if n % 3 == 0 else 0,
            "ignore_eos": True,
        }
        for n in range(NUM_LINES)
    )
    path.write_bytes(b"".join(request_line(f"r{n}", body=b) for n, b in enumerate(bodies)))


def texts(results: list[dict[str, Any]]) -> dict[str, str]:
    return {r["custom_id"]: r["response"]["body"]["choices"][0]["text"] for r in results}


@pytest.mark.slow
def test_a_killed_job_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    write_input(tmp_path / "in.jsonl")
    assert run_here(*arguments(tmp_path, "whole.jsonl")).returncode == 0
    rng = random.Random(1)
    output = tmp_path / "out.jsonl"
    for _ in range(NUM_KILLS):
        kill_after(tandem(*arguments(tmp_path, "out.jsonl")), output, rng.randrange(1, 15))
    done = run_here(*arguments(tmp_path, "out.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "resuming: " in done.stderr
    results = read_results(output)
    assert sorted(line_numbers(results)) == list(range(1, NUM_LINES + 1))
    assert texts(results) == texts(read_results(tmp_path / "whole.jsonl"))
    assert json.dumps(results).count("completion_tokens") == NUM_LINES


def kill_after(line: list[str], output: Path, num_more: int) -> None:
    """Run until so many more results are there, and kill it."""
    before = output.read_bytes().count(b"\n") if output.exists() else 0
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.DEVNULL)
    try:
        while not output.exists() or output.read_bytes().count(b"\n") < before + num_more:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
    finally:
        process.kill()
    assert process.wait(30) == -signal.SIGKILL

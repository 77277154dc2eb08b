"""`tandem batch --plan auto` with the demo model on an emulated accelerator: tokens are those of
the engine without a plan, also of a job that was killed.
"""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.docs.pages import environment, tandem
from tests.fakes.answerer import read_results, request_line
from tests.support.command_line import run_here

from tandem.plan.plan_file import read_plan

NUM_LINES = 16
EMULATED = ("--accelerator", "emulated:exact,seed=3", "--max-num-batched-tokens", "64")
SMALL = ("--gpu-memory", "74MiB", "--cpu-memory", "64MiB", "--plan", "auto")


def arguments(folder: Path, output: str, *more: str) -> tuple[str, ...]:
    files = ("-i", str(folder / "in.jsonl"), "-o", str(folder / output))
    return ("batch", "demo", *files, *EMULATED, *more)


def write_input(path: Path, longest: int = 12) -> None:
    """Lines of 6 to 12 tokens, the last four of `longest`."""
    bodies = (
        {
            "prompt": "The standard library of Python has " + "many modules and " * (n % 5),
            "max_tokens": longest if n >= NUM_LINES - 4 else 6 + n % 7,
            "temperature": 0.9 if n % 3 == 0 else 0,
            "ignore_eos": True,
        }
        for n in range(NUM_LINES)
    )
    path.write_bytes(b"".join(request_line(f"r{n}", body=b) for n, b in enumerate(bodies)))


def texts(path: Path) -> dict[str, str]:
    answered = [(line["custom_id"], line["response"]["body"]) for line in read_results(path)]
    return {name: body["choices"][0]["text"] for name, body in answered}


def test_a_job_planned_for_gives_the_same_tokens_also_after_a_kill(tmp_path: Path) -> None:
    write_input(tmp_path / "in.jsonl", 50)  # so that it is still there when it is to be killed
    plain = run_here(*arguments(tmp_path, "plain.jsonl", "--no-isolate-engine"))
    assert plain.returncode == 0, plain.stderr
    assert "--plan auto" not in plain.stderr  # all fits
    output = tmp_path / "out.jsonl"
    kill_after(tandem(*arguments(tmp_path, "out.jsonl", *SMALL)), output, 3)
    num_done = output.read_bytes().count(b"\n")
    left_plan = ("--plan", str(tmp_path / "out.jsonl.plan.json"))
    refused = run_here(*arguments(tmp_path, "out.jsonl", *left_plan))
    assert refused.returncode == 2
    assert "resume with --plan auto" in refused.stderr
    done = run_here(*arguments(tmp_path, "out.jsonl", *SMALL, "--no-isolate-engine"))
    assert done.returncode == 0, done.stderr
    left = NUM_LINES - num_done
    assert f"resuming: {num_done} of {NUM_LINES} lines are done" in done.stderr
    assert re.search(rf"plan for {left} requests of \d+ tokens and up to \d+ more", done.stderr)
    plan = read_plan(tmp_path / "out.jsonl.plan.json").blocks
    assert plan.host.weights_bytes
    assert plan.host_rows
    assert f"as planned in {tmp_path / 'out.jsonl.plan.json'}" in done.stderr
    assert texts(output) == texts(tmp_path / "plain.jsonl")
    assert json.dumps(read_results(output)).count("completion_tokens") == NUM_LINES


def test_kv_in_few_bits_that_is_allowed_may_stay_on_the_accelerator(tmp_path: Path) -> None:
    """Tokens are those of an engine that holds all of it so."""
    write_input(tmp_path / "in.jsonl")
    allowed = ("--kv-cache-dtype", "int8", "--no-isolate-engine")
    plain = run_here(*arguments(tmp_path, "plain.jsonl", *allowed))
    assert plain.returncode == 0, plain.stderr
    planned = ("--gpu-memory", "77MiB", "--cpu-memory", "64MiB", "--plan", "auto")
    done = run_here(*arguments(tmp_path, "out.jsonl", *allowed, *planned))
    assert done.returncode == 0, done.stderr
    assert "all KV in int8" in done.stderr
    plan = read_plan(tmp_path / "out.jsonl.plan.json").blocks
    assert (plan.kv_dtype, plan.host_kv_dtype) == ("int8", "int8")
    assert plan.resident_rows
    assert texts(tmp_path / "out.jsonl") == texts(tmp_path / "plain.jsonl")


def kill_after(line: list[str], output: Path, num_results: int) -> None:
    """Run until so many results are there, and kill it."""
    process = subprocess.Popen(line, env=environment(), stderr=subprocess.DEVNULL)
    try:
        while not output.exists() or output.read_bytes().count(b"\n") < num_results:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.01)
    finally:
        process.kill()
    assert process.wait(30) == -signal.SIGKILL


def test_what_does_not_fit_is_said_without_a_plan(tmp_path: Path) -> None:
    write_input(tmp_path / "in.jsonl")
    memory = ("--gpu-memory", "10MiB", "--cpu-memory", "64MiB", "--max-num-seqs", "8")
    ran = run_here(*arguments(tmp_path, "out.jsonl", *memory, "--no-isolate-engine"))
    assert ran.returncode == 0, ran.stderr
    notes = [line for line in ran.stderr.splitlines() if "--plan auto plans for" in line]
    assert len(notes) == 1
    assert " of weights do not fit the accelerator" in notes[0]

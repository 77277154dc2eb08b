"""The calls of `run_all.sh`: resumed, ended in time, and told of."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.gpu import run
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings, partial_path
from benchmarks.gpu.full_scale import full
from benchmarks.gpu.part import FAILED
from benchmarks.gpu.parts import ENGINE_TESTS, KERNEL_TESTS, Part, parts_of
from benchmarks.gpu.run import run_for, run_parts
from benchmarks.gpu.summary import summary_lines
from benchmarks.gpu.tiny_scale import tiny
from scripts.gpu_check import ORDER

from tandem.bench.records import BenchRecord, BenchRow


class Clock:
    """Time that passes when somebody says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Runs:
    """Takes a part's command, lets time pass, and writes what a part would."""

    def __init__(self, clock: Clock, takes_s: Mapping[str, float]) -> None:
        self._clock, self._takes_s = clock, takes_s
        self.begun: list[str] = []

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float, log: Path
    ) -> int | None:
        name, path = command[3], Path(command[5])
        assert Path(environment["XDG_CACHE_HOME"]).parent == path.parent
        assert Path(environment["TRITON_CACHE_DIR"]).parent == path.parent / "cache"
        assert log == path.parent / "logs" / f"{name}.log"
        self.begun.append(name)
        taken_s = min(seconds, self._takes_s[name])
        self._clock.now_s += taken_s
        found = Findings(f"gpu {name}", "a command", {"git_commit": "0"}, path)
        found.add(BenchRow("case", "ours", "rate", 2.0, "GB/s", 4.0))
        if taken_s < self._takes_s[name]:
            return None
        found.finish()
        return 0


def part(name: str, limit_s: float = 200.0, least_s: float = 20.0) -> Part:
    def never(*arguments: object) -> None:
        raise AssertionError(arguments)

    return Part(name, limit_s, least_s, lambda: never)


PARTS = [part("a"), part("b"), part("c")]


def test_a_call_ends_in_time_and_the_next_one_goes_on(tmp_path: Path) -> None:
    clock = Clock()
    runs = Runs(clock, {"a": 100.0, "b": 150.0, "c": 30.0})
    assert run_parts(PARTS, tmp_path, Deadline(260.0, clock), tiny=False, start=runs) == []
    assert runs.begun == ["a", "b"]
    assert clock.now_s <= 260.0
    assert run_parts(PARTS, tmp_path, Deadline(600.0, clock), tiny=False, start=runs) == []
    assert runs.begun == ["a", "b", "c"]


def test_a_part_that_was_ended_keeps_what_it_found_and_is_measured_again(tmp_path: Path) -> None:
    clock = Clock()
    slow = Runs(clock, {"a": 1000.0, "b": 10.0, "c": 10.0})
    assert run_parts(PARTS, tmp_path, Deadline(400.0, clock), tiny=False, start=slow) == ["a"]
    kept = BenchRecord.from_json(partial_path(tmp_path / "a.json").read_text())
    assert [row.value for row in kept.rows] == [2.0]
    lines = summary_lines(PARTS, tmp_path, "run_all.sh")
    assert "## a (cut off), ended for want of time" in lines
    assert "## b" in lines
    quick = Runs(clock, {"a": 50.0})
    assert run_parts(PARTS, tmp_path, Deadline(2000.0, clock), tiny=False, start=quick) == []
    assert quick.begun == ["a"]
    assert not partial_path(tmp_path / "a.json").exists()
    assert "## a" in summary_lines(PARTS, tmp_path, "run_all.sh")


class Failing(Runs):
    """Every part finds something wrong."""

    def __call__(self, *arguments: Any) -> int:
        super().__call__(*arguments)
        Path(arguments[0][5]).unlink()
        return FAILED


def test_what_is_wrong_is_not_looked_at_twice_in_a_call(tmp_path: Path) -> None:
    clock = Clock()
    runs = Failing(clock, {"a": 10.0})
    assert run_parts(PARTS[:1], tmp_path, Deadline(260.0, clock), tiny=False, start=runs) == ["a"]
    assert runs.begun == ["a"]
    assert "something does not hold" in (tmp_path / "a.failed").read_text()


def test_a_record_without_what_others_need_of_it_is_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a machine that was given the records of another's calls, but not its profile."""
    clock, lacks = Clock(), [None, "no profile in cache/tandem", None]
    part_a = replace(PARTS[0], lacks=lambda environment: lacks.pop(0))
    for begun in (["a"], [], ["a"], []):
        runs = Runs(clock, {"a": 10.0})
        limit = Deadline(clock.now_s + 260.0, clock)
        assert run_parts([part_a], tmp_path, limit, tiny=False, start=runs) == []
        assert runs.begun == begun
    assert "its record is there, but is not enough: no profile" in capsys.readouterr().err


def test_a_profile_that_cannot_be_read_is_lacking(tmp_path: Path) -> None:
    (profile,) = [each for each in parts_of(full()) if each.name == "profile"]
    said = profile.lacks({"XDG_CACHE_HOME": str(tmp_path)})
    assert said is not None
    assert "tandem profile" in said


def test_kernels_of_the_cpu_are_compiled_before_any_part_where_they_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[Sequence[str]] = []

    def noted(command: Sequence[str], *_: object) -> int:
        ran.append(command)
        return 1 if "--build-only" in command else 0

    monkeypatch.setattr(run, "run_for", noted)
    monkeypatch.setattr(run, "cuda_available", lambda: True)
    monkeypatch.setattr(run.native, "available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["run_all.sh", "--only", "links", "--out", str(tmp_path)])
    assert run.main() == 0
    assert [command[-1] for command in ran[:1]] == ["--build-only"]
    assert "benchmarks.gpu.part" in ran[1]
    assert "could not be compiled" in capsys.readouterr().err
    monkeypatch.setattr(run.native, "available", lambda: True)
    ran.clear()
    run.main()
    assert all("--build-only" not in command for command in ran)


def test_the_summary_names_versions_figures_and_what_is_missing(tmp_path: Path) -> None:
    found = Findings("gpu a", "a command", {"torch": "2.11"}, tmp_path / "a.json")
    found.add(BenchRow("decode", "ours", "bandwidth", 3.0, "TB/s", 4.0, (2.5, 3.5)))
    found.note("b was left out")
    found.finish()
    text = "\n".join(summary_lines(PARTS, tmp_path, "run_all.sh"))
    assert "torch 2.11" in text
    assert "| decode | bandwidth | ours | 3 TB/s | 2.5 to 3.5 | 4 | 0.75 |" in text
    assert "- b was left out" in text
    assert "## c: not measured" in text


def test_a_process_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    told = tmp_path / "child"
    child = f"import time,pathlib; time.sleep(30); pathlib.Path({str(told)!r}).write_text('x')"
    parent = f"import subprocess,sys; subprocess.run([sys.executable, '-c', {child!r}])"
    begin = time.monotonic()
    log = tmp_path / "logs" / "part.log"
    assert run_for([sys.executable, "-c", parent], {}, 0.5, log) is None
    assert time.monotonic() - begin < 20
    script = "print('what it says'); raise SystemExit(3)"
    assert run_for([sys.executable, "-c", script], {}, 20.0, log) == 3
    assert log.read_text() == "what it says\n"
    assert not told.exists()


def test_a_call_begins_before_anything_is_compiled() -> None:
    script = """
import sys
sys.modules["tandem.kernels._native"] = None  # as where it is not there
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.run import main
from benchmarks.gpu.full_scale import full
check, *_ = parts_of(full())
print(check.name, check.load().func.__name__)
"""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    assert (run.stdout.split(), run.stderr) == (["check-kernels", "measure_check"], "")


def test_rounds_stop_when_another_would_not_end_in_time() -> None:
    clock = Clock()
    rounds = 0
    for _ in Deadline(10.0, clock).rounds(7):
        clock.now_s += 4.0
        rounds += 1
    assert rounds == 2
    assert list(Deadline(clock.now_s, clock).rounds(3)) == [0]


def test_every_part_fits_a_call_and_has_a_name_of_its_own() -> None:
    parts = parts_of(full())
    assert len({each.name for each in parts}) == len(parts)
    assert all(each.least_s < each.limit_s < 500 for each in parts)
    kinds = {each.name.partition("-")[0] for each in parts}
    assert kinds == {
        "check", "profile", "links", "kernels", "tiles", "host", "online", "larger", "planned",
        "offline",
    }  # fmt: skip
    assert {each.name.partition("-")[0] for each in parts_of(tiny())} == kinds - {"check"}


def test_records_with_notes_read_back(tmp_path: Path) -> None:
    record = BenchRecord("gpu a", "c", {}, (BenchRow("x", "y", "z", 1.0, "s"),), ("one", "two"))
    assert BenchRecord.from_json(record.to_json()).notes == ("one", "two")
    assert "notes" not in json.loads(BenchRecord("gpu a", "c", {}, ()).to_json())


def test_parts_that_failed_come_behind_the_others_in_the_next_call(tmp_path: Path) -> None:
    clock = Clock()
    slow = Runs(clock, {"a": 1000.0})
    assert run_parts(PARTS, tmp_path, Deadline(225.0, clock), tiny=False, start=slow) == ["a"]
    runs = Runs(clock, {"a": 50.0, "b": 10.0, "c": 10.0})
    assert run_parts(PARTS, tmp_path, Deadline(2000.0, clock), tiny=False, start=runs) == []
    assert runs.begun == ["b", "c", "a"]
    assert not list(tmp_path.glob("*.failed"))


def test_what_decides_most_is_measured_first() -> None:
    names = [part.name for part in parts_of(full())]
    assert names[:6] == [
        "check-kernels", "check-engines", "profile", "online-llama-3.1-8b-16gib", "links", "kernels"
    ]  # fmt: skip


def test_all_smoke_tests_are_of_a_part() -> None:
    assert (*KERNEL_TESTS, *ENGINE_TESTS) == ORDER


class Breaking(Runs):
    """A part whose first cases, so many of them, break their process; the others end."""

    def __init__(self, clock: Clock, breaking: int) -> None:
        super().__init__(clock, {})
        self._cases = {f"case {number}": number < breaking for number in range(4)}

    def __call__(
        self, command: Sequence[str], environment: Mapping[str, str], seconds: float, log: Path
    ) -> int:
        self.begun.append(command[3])
        found = Findings("gpu a", "a command", {"git_commit": "0"}, Path(command[5]))
        for name in found.left(self._cases):
            found.begin(name)
            if self._cases[name]:
                return 1
            found.end(name)
        found.finish()
        return 0


@pytest.mark.parametrize(("breaking", "processes"), [(0, 1), (1, 3), (2, 2)])
def test_cases_behind_one_that_breaks_its_process_are_measured_in_the_same_call(
    tmp_path: Path, breaking: int, processes: int
) -> None:
    """Also behind the first one, which nothing has ended before; two such are the end of it: then
    it is the machine.
    """
    runs = Breaking(Clock(), breaking)
    failed = run_parts(PARTS[:1], tmp_path, Deadline.after(1000.0), tiny=False, start=runs)
    assert failed == ["a"] * (breaking > 1)
    assert runs.begun == ["a"] * processes
    assert (tmp_path / "a.json").exists() == (breaking < 2)


def test_a_call_that_is_cut_off_has_told_of_the_parts_before(tmp_path: Path) -> None:
    clock = Clock()
    runs = Runs(clock, {"a": 10.0, "b": 1000.0, "c": 10.0})
    told: list[list[str]] = []
    run_parts(
        PARTS, tmp_path, Deadline(2000.0, clock), tiny=False, start=runs,
        ended=lambda: told.append(summary_lines(PARTS, tmp_path, "run_all.sh")),
    )  # fmt: skip
    states = [[line for line in lines if line.startswith("## ")] for lines in told]
    cut_off = "## b (cut off), ended for want of time"
    assert states == [
        ["## a", "## b: not measured", "## c: not measured"],
        ["## a", cut_off, "## c: not measured"],
        ["## a", cut_off, "## c"],
    ]


def test_only_plans_need_what_a_machine_with_a_gpu_may_lack(tmp_path: Path) -> None:
    """Front ends, the server and the planner's solver are not among what comes with torch."""
    script = f"""
import sys
for name in ("highspy", "fastapi", "uvicorn", "pydantic", "pydantic_settings", "multipart"):
    sys.modules[name] = None  # as where it is not installed
from benchmarks.gpu import part
from benchmarks.gpu.parts import parts_of
from benchmarks.gpu.tiny_scale import tiny
for each in parts_of(tiny()):
    if each.name.partition("-")[0] not in ("planned", "offline"):
        each.load()
file = {str(tmp_path / "planned.json")!r}
print(part.main(["planned-llama-3.1-8b", "--json", file, "--tiny"]))
"""
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False
    )
    (told,) = run.stderr.splitlines()
    assert told.startswith("planned-llama-3.1-8b: cannot be measured here: ")
    assert "highspy" in told
    assert run.stdout.split() == ["1"]


def call_of(python: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Of `run_all.sh`."""
    script = Path(__file__).parents[3] / "benchmarks" / "gpu" / "run_all.sh"
    return subprocess.run(
        ["bash", str(script), *arguments],
        env={**os.environ, "PYTHON": python},
        capture_output=True,
        text=True,
    )


def test_what_cannot_be_measured_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for arguments, said in (
        (("--only", "nothing"), "--only nothing: no part's name contains it; there are: profile,"),
        (("--only", "links", "--out", str(file)), f"--out {file}: File exists; name a folder"),
        (("--only", "links", "--out", str(file / "below")), "below: Not a directory; name"),
    ):
        ended = call_of(sys.executable, "--tiny", *arguments)
        assert ended.returncode == 1
        assert ended.stdout == ""
        (line,) = ended.stderr.splitlines()
        assert said in line


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')  # no installed packages
    bare.chmod(0o755)
    ended = call_of(str(bare))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"{bare} has no torch; name a Python that has it: PYTHON=")

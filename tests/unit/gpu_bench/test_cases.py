"""Cases of a part: gone on with, tried again, and given up."""

import gc
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from benchmarks.gpu import cases
from benchmarks.gpu.cases import Case, CaseError, FailedError, UnfinishedError, run_cases
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings, ended_cases, partial_path, progress_path

from tandem.bench.records import BenchRecord, BenchRow


class Clock:
    """Time that passes when somebody says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Crash(BaseException):
    """The end of the process."""


class Measured:
    """Cases that take ten seconds each, and find a row; some do otherwise."""

    def __init__(self, path: Path, **others: Callable[[], None]) -> None:
        self.clock, self.begun = Clock(), list[str]()
        self._path, self._others = path, others

    def run(self, names: str, seconds: float, commit: str = "1") -> Findings:
        found = Findings("gpu a", "a command", {"git_commit": commit}, self._path)
        made: Mapping[str, Case] = {name: self._case(name, found) for name in names}
        run_cases(made, Deadline.after(seconds, self.clock), found)
        return found

    def _case(self, name: str, found: Findings) -> Case:
        def measure(limit: Deadline) -> None:
            del limit
            self.begun.append(name)
            self.clock.now_s += 10.0
            found.add(BenchRow(name, "ours", "rate", 1.0, "GB/s"))
            if name in self._others:
                self._others[name]()

        return measure


def raising(error: BaseException) -> Callable[[], None]:
    def measure() -> None:
        raise error

    return measure


def rows(found: Findings) -> list[str]:
    return [row.case for row in found.rows]


def test_the_next_call_goes_on_with_what_there_was_no_time_for(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    measured = Measured(path)
    with pytest.raises(UnfinishedError, match="c, d: left to the next call"):
        measured.run("abcd", seconds=25.0)
    assert ended_cases(path) == 2
    assert rows(measured.run("abcd", seconds=25.0)) == ["a", "b", "c", "d"]
    assert measured.begun == ["a", "b", "c", "d"]


def test_one_case_is_measured_however_little_time_there_is(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "a.json")
    with pytest.raises(UnfinishedError):
        measured.run("ab", seconds=1.0)
    assert measured.begun == ["a"]


def test_a_case_that_ends_its_process_comes_last_and_is_then_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    measured = Measured(path, b=raising(Crash()))
    for ended in (1, 2):
        with pytest.raises(Crash):
            measured.run("abc", seconds=100.0)
        assert ended_cases(path) == ended
    assert measured.begun == ["a", "b", "c", "b"]
    found = measured.run("abc", seconds=100.0)
    assert rows(found) == ["a", "c"], "what it found before it broke is not counted"
    record = found.finish()
    assert record.notes == ("b did not end in 2 tries, and was left out",)
    assert not progress_path(path).exists()
    assert not partial_path(path).exists()


def test_what_cannot_be_measured_is_noted_and_not_tried_again(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "a.json", a=raising(CaseError("no such library")))
    found = measured.run("ab", seconds=100.0)
    assert found.finish().notes == ("a was not run: no such library",)
    assert measured.begun == ["a", "b"]


def test_what_fails_is_looked_at_again_by_every_call_until_it_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    failing = Measured(path, b=raising(FailedError("3 is not 4")))
    for _ in range(3):  # never given up
        with pytest.raises(FailedError, match="b: failed"):
            failing.run("abc", seconds=100.0)
        (note,) = BenchRecord.from_json(partial_path(path).read_text()).notes
        assert note == "b failed: 3 is not 4"
    assert failing.begun == ["a", "b", "c", "b", "b"]
    found = Measured(path).run("abc", seconds=100.0)
    assert rows(found)[-1] == "b"
    assert found.finish().notes == (), "what was wrong is no longer said"


def test_what_a_library_raises_is_its_case_s_alone(tmp_path: Path) -> None:
    """The others go on in the same process; it is tried once more, then left out."""
    path = tmp_path / "a.json"
    measured = Measured(path, a=raising(RuntimeError("no kernel image\nfor this device")))
    for begun in ("abc", "abca"):
        with pytest.raises(FailedError, match="a: failed"):
            measured.run("abc", seconds=100.0)
        assert "".join(measured.begun) == begun
        kept = BenchRecord.from_json(partial_path(path).read_text())
        assert [row.case for row in kept.rows] == ["b", "c"], "what it found is not counted"
        assert kept.notes == ("a failed: RuntimeError: no kernel image",)
    found = measured.run("abc", seconds=100.0)
    assert "".join(measured.begun) == "abca"
    assert found.finish().notes == ("a did not end in 2 tries, and was left out",)


def test_nothing_else_is_measured_on_a_device_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cases, "device_answers", lambda: False)
    measured = Measured(tmp_path / "a.json", a=raising(RuntimeError("illegal memory access")))
    with pytest.raises(RuntimeError, match="illegal"):
        measured.run("ab", seconds=100.0)
    assert measured.begun == ["a"]


def test_what_failed_is_told_though_there_is_no_time_for_others(tmp_path: Path) -> None:
    failing = Measured(tmp_path / "a.json", a=raising(FailedError("no")))
    with pytest.raises(FailedError):
        failing.run("ab", seconds=5.0)
    assert failing.begun == ["a"]


def test_memory_is_given_back_before_the_next_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that knows itself is garbage, but would hold its memory."""

    class Engine:
        def __init__(self) -> None:
            self.knows = self

    path, living = tmp_path / "a.json", list[weakref.ref[Engine]]()
    found = Findings("gpu a", "a command", {}, path)

    def measure(limit: Deadline) -> None:
        del limit
        assert all(each() is None for each in living)
        living.append(weakref.ref(Engine()))

    gc.disable()
    try:
        run_cases({"a": measure, "b": measure}, Deadline.after(100.0), found)
    finally:
        gc.enable()
    assert len(living) == 2


def test_another_commit_begins_anew(tmp_path: Path) -> None:
    measured = Measured(tmp_path / "a.json")
    with pytest.raises(UnfinishedError):
        measured.run("ab", seconds=5.0)
    assert rows(measured.run("ab", seconds=100.0, commit="2")) == ["a", "b"]
    assert measured.begun == ["a", "a", "b"]

"""What a part has found so far, on disk after every step: a part that is cut off is not lost."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tandem.bench.records import BenchRecord, BenchRow

PARTIAL, PROGRESS = ".partial", ".progress"
_MOST_TRIES = 2


def partial_path(path: Path) -> Path:
    """Where the record of an unfinished part lies."""
    return path.with_name(path.name + PARTIAL)


def progress_path(path: Path) -> Path:
    """Where an unfinished part says which of its cases have been begun, and ended."""
    return path.with_name(path.name + PROGRESS)


def ended_cases(path: Path) -> int:
    """How many cases of an unfinished part have ended; 0 if it has none."""
    return len(_told(path).get("ended", ()))


def begun_cases(path: Path) -> int:
    """How often cases of an unfinished part have been begun."""
    return sum(_told(path).get("begun", {}).values())


def _told(path: Path) -> dict[str, Any]:
    progress = progress_path(path)
    return json.loads(progress.read_text(encoding="utf-8")) if progress.exists() else {}


class Findings:
    """Rows and notes of one part.

    A part of cases goes on where one of the same commit was cut off, with what its ended cases
    found.

    Args:
        path: of the record. command, machine: see `BenchRecord`.
    """

    def __init__(self, suite: str, command: str, machine: dict[str, Any], path: Path) -> None:
        self._suite, self._command, self._machine, self._path = suite, command, machine, path
        self._rows: list[BenchRow] = []
        self._notes: list[str] = []
        self._begun: Counter[str] = Counter()
        self._ended: list[str] = []
        self._before = 0, 0
        self._go_on()

    def _go_on(self) -> None:
        partial, progress = partial_path(self._path), progress_path(self._path)
        if not partial.exists() or not progress.exists():
            return
        before = BenchRecord.from_json(partial.read_text(encoding="utf-8"))
        if before.machine.get("git_commit") != self._machine.get("git_commit"):
            progress.unlink()
            return
        told = json.loads(progress.read_text(encoding="utf-8"))
        self._rows += before.rows[: told["rows"]]
        self._notes += before.notes[: told["notes"]]
        self._begun.update(told["begun"])
        self._ended += told["ended"]

    def add(self, *rows: BenchRow) -> None:
        """Figures."""
        self._rows += rows
        self._write(partial_path(self._path))

    def note(self, text: str) -> None:
        """What a reader must know beside the figures: what was left out, and why."""
        if text not in self._notes:
            self._notes.append(text)
        self._write(partial_path(self._path))

    @property
    def path(self) -> Path:
        """Of the record."""
        return self._path

    @property
    def rows(self) -> Sequence[BenchRow]:
        """All figures so far."""
        return self._rows

    # --- cases ----------------------------------------------------------------------------------

    def left(self, names: Iterable[str]) -> list[str]:
        """Cases that have not ended, those that cut the part off before behind the others; without
        those that did so twice, which a note says.
        """
        waiting = [name for name in names if name not in self._ended]
        for name in waiting:
            if self._begun[name] >= _MOST_TRIES:
                self.note(f"{name} did not end in {_MOST_TRIES} tries, and was left out")
                self.end(name)
        tried = sorted(waiting, key=lambda name: self._begun[name])
        return [name for name in tried if name not in self._ended]

    def begin(self, name: str) -> None:
        """A case is being measured."""
        self._begun[name] += 1
        self._before = len(self._rows), len(self._notes)
        self._progress()

    def end(self, name: str) -> None:
        """A case has been measured, or cannot be."""
        self._ended.append(name)
        self._progress()

    def break_off(self) -> None:
        """The case that was begun last has come to no end: what it found is dropped; the next call
        begins it anew, once.
        """
        rows, notes = self._before
        del self._rows[rows:], self._notes[notes:]
        self._progress()

    def fail(self, name: str) -> None:
        """A case has come to its end, but not to a good one: it is begun anew in the next call, as
        often as it fails.
        """
        del self._begun[name]
        self._progress()

    def _progress(self) -> None:
        """What cases after this found, and did not end, is found anew."""
        self._write(partial_path(self._path))
        told = {
            "begun": dict(self._begun), "ended": self._ended,
            "rows": len(self._rows), "notes": len(self._notes),
        }  # fmt: skip
        _replace(progress_path(self._path), json.dumps(told))

    # --- the record -----------------------------------------------------------------------------

    def finish(self) -> BenchRecord:
        """The part is complete: its record takes the name by which the next call skips it."""
        partial = partial_path(self._path)
        self._write(partial)
        os.replace(partial, self._path)
        progress_path(self._path).unlink(missing_ok=True)
        return self._record()

    def _record(self) -> BenchRecord:
        return BenchRecord(
            self._suite, self._command, self._machine, tuple(self._rows), tuple(self._notes)
        )

    def _write(self, path: Path) -> None:
        _replace(path, self._record().to_json())


def _replace(path: Path, text: str) -> None:
    written = path.with_name(path.name + ".new")
    written.write_text(text + "\n", encoding="utf-8")
    os.replace(written, path)

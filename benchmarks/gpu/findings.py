"""What a part has found so far, on disk after every step: a part that is cut off is not lost."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tandem.bench.records import BenchRecord, BenchRow

PARTIAL = ".partial"


def partial_path(path: Path) -> Path:
    """Where the record of an unfinished part lies."""
    return path.with_name(path.name + PARTIAL)


class Findings:
    """Rows and notes of one part.

    Args:
        path: of the record. command, machine: see `BenchRecord`.
    """

    def __init__(self, suite: str, command: str, machine: dict[str, Any], path: Path) -> None:
        self._suite, self._command, self._machine, self._path = suite, command, machine, path
        self._rows: list[BenchRow] = []
        self._notes: list[str] = []

    def add(self, *rows: BenchRow) -> None:
        """Figures."""
        self._rows += rows
        self._write(partial_path(self._path))

    def note(self, text: str) -> None:
        """What a reader must know beside the figures: what was left out, and why."""
        self._notes.append(text)
        self._write(partial_path(self._path))

    @property
    def rows(self) -> Sequence[BenchRow]:
        """All figures so far."""
        return self._rows

    def finish(self) -> BenchRecord:
        """The part is complete: its record takes the name by which the next call skips it."""
        partial = partial_path(self._path)
        self._write(partial)
        os.replace(partial, self._path)
        return self._record()

    def _record(self) -> BenchRecord:
        return BenchRecord(
            self._suite, self._command, self._machine, tuple(self._rows), tuple(self._notes)
        )

    def _write(self, path: Path) -> None:
        written = path.with_name(path.name + ".new")
        written.write_text(self._record().to_json() + "\n", encoding="utf-8")
        os.replace(written, path)

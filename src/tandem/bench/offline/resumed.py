"""What a record of an earlier run has already, of a command that goes on where it ended."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.records import BenchRecord, BenchRow, read_record
from tandem.bench.same_machine import differing
from tandem.spec.errors import ConfigError

_APART = ("--json", "--only", "--resume")
"""Flags that say where the record is, or which cells it has, not how they are run."""


@dataclass(frozen=True, slots=True)
class Done:
    """What has been run.

    Attributes:
        record: of all runs before; None: there was none.
    """

    record: BenchRecord | None = None

    @property
    def rows(self) -> tuple[BenchRow, ...]:
        """Of cells that have been run."""
        return () if self.record is None else self.record.rows

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of them, and by which command, under which load, the last were run."""
        if self.record is None:
            return ()
        kept = (note for note in self.record.notes if note != self.record.unfinished)
        load = self.record.machine.get("load_average")
        return (*kept, f"before: {self.record.command}, at a load average of {load}")

    def has(self, cell: OfflineCell) -> bool:
        """Whether it has been run."""
        return any(row.case == str(cell) for row in self.rows)


def done_before(path: Path, command: str, machine: Mapping[str, Any]) -> Done:
    """Of the record, if there is one.

    Args:
        command: that goes on, as it was typed.
        machine: on which it goes on, with the commit.

    Raises:
        ConfigError: there is something else, or it is another command's, machine's or commit's.
    """
    if not path.exists():
        return Done()
    record = read_record(path)
    if _asked(record.command) != _asked(command):
        raise ConfigError(
            f"{path} was written by another command, '{record.command}'; resume with its flags, or "
            "give --json another file",
            param="resume",
        )
    field = differing(record.machine, machine)
    if field is not None:
        raise ConfigError(
            f"{path} has another '{field}': {record.machine.get(field)!r}, not "
            f"{machine.get(field)!r}; resume on its machine, at its commit, or give --json another "
            "file",
            param="resume",
        )
    return Done(record)


def _asked(command: str) -> list[tuple[str, str]]:
    """Its flags with their values, in any order, but for those that are apart."""
    return sorted(pair for pair in _pairs(shlex.split(command)) if pair[0] not in _APART)


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Flags and values; a word that is of no flag is its own."""
    flag: str | None = None
    for word in words:
        if word.startswith("--"):
            if flag is not None:
                yield flag, ""
            flag, given, value = word.partition("=")
            if given:
                yield flag, value
                flag = None
        else:
            yield (word, "") if flag is None else (flag, word)
            flag = None
    if flag is not None:
        yield flag, ""

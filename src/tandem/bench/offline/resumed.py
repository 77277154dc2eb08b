"""What a record of an earlier run has already, of a command that goes on where it ended."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.bench.offline.cell import OfflineCell
from tandem.bench.offline.cut_ratios import CUT
from tandem.bench.records import BenchRow, read_record
from tandem.spec.errors import ConfigError

_APART = ("--json", "--only")
"""Flags whose value is where the record is, or which cells it has, not how they are run."""


@dataclass(frozen=True, slots=True)
class Done:
    """Rows of cells that have been run."""

    rows: tuple[BenchRow, ...] = ()

    def has(self, cell: OfflineCell) -> bool:
        """Whether it has been run."""
        return any(row.case == str(cell) for row in self.rows)

    def has_ratios(self, cell: OfflineCell) -> bool:
        """Whether it is told what cutting it changed."""
        return any((row.case, row.variant) == (str(cell), CUT) for row in self.rows)


def done_before(path: Path, command: str) -> Done:
    """Of the record, if there is one.

    Args:
        command: that goes on, as it was typed.

    Raises:
        ConfigError: there is something else, or it is another command's.
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
    return Done(record.rows)


def _asked(command: str) -> list[str]:
    """Its words, but for those that say where to, and which cells."""
    words: Sequence[str] = shlex.split(command)
    found: list[str] = []
    skips = False
    for word in words:
        if not skips and word not in (*_APART, "--resume"):
            found.append(word)
        skips = not skips and word in _APART
    return sorted(found)

"""What every benchmark writes: rows that hold each figure beside the limit it is held against."""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tandem.probes.interleave import PairedRatio
from tandem.spec.errors import ConfigError

_UNFINISHED = "unfinished: "


def unfinished(num_done: int, num_cells: int) -> str:
    """The note of a record that has not all cells yet."""
    return f"{_UNFINISHED}{num_done} of {num_cells} cells"


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One figure.

    Attributes:
        case: what was run; rows of one case may be compared with each other.
        variant: who ran it: a strategy, this engine, or a peer.
        bound: the limit, in `unit`: a rate that hardware allows, or a time not to exceed. None only
            where no limit makes sense.
        spread: lowest and highest single sample; the value itself if there is only one.
    """

    case: str
    variant: str
    metric: str
    value: float
    unit: str
    bound: float | None = None
    spread: tuple[float, float] | None = None

    @property
    def fraction(self) -> float | None:
        """Value over bound."""
        return self.value / self.bound if self.bound else None

    def as_json(self) -> dict[str, Any]:
        """All fields of the record format."""
        fields = asdict(self)
        spread = list(self.spread or (self.value, self.value))
        return {**fields, "fraction": self.fraction, "spread": spread}

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "BenchRow":
        """Inverse of `as_json`; `fraction` follows from the others."""
        given = {name: value for name, value in fields.items() if name != "fraction"}
        low, high = given.pop("spread")
        return BenchRow(**given, spread=(low, high))


@dataclass(frozen=True, slots=True)
class BenchRecord:
    """One run of a suite.

    Attributes:
        command: as typed, so that the run can be repeated.
        machine: see `describe_machine`.
        notes: what a reader must know beside the figures, such as what was left out.
    """

    suite: str
    command: str
    machine: dict[str, Any]
    rows: tuple[BenchRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def unfinished(self) -> str | None:
        """The note that says so, if it has not all cells."""
        return next((note for note in self.notes if note.startswith(_UNFINISHED)), None)

    def to_json(self) -> str:
        """The record as indented JSON.

        Raises:
            ValueError: a figure is not a finite number.
        """
        fields = {
            "suite": self.suite,
            "command": self.command,
            "machine": self.machine,
            "rows": [row.as_json() for row in self.rows],
        }
        if self.notes:
            fields["notes"] = list(self.notes)
        return json.dumps(fields, indent=2, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> "BenchRecord":
        """Inverse of `to_json`."""
        fields = json.loads(text)
        rows = tuple(BenchRow.from_json(row) for row in fields.pop("rows"))
        notes = tuple(fields.pop("notes", ()))
        return BenchRecord(**fields, rows=rows, notes=notes)


def row_of_samples(
    case: str,
    variant: str,
    metric: str,
    samples: Sequence[float],
    unit: str,
    bound: float | None = None,
) -> BenchRow:
    """The median of some samples, with their spread."""
    spread = (min(samples), max(samples))
    return BenchRow(case, variant, metric, statistics.median(samples), unit, bound, spread)


def rows_of_ratio(
    case: str, variant: str, metric: str, ratio: PairedRatio, target: float | None = 1.0
) -> list[BenchRow]:
    """A paired ratio, and its limit if it has one."""
    rows = [BenchRow(case, variant, metric, ratio.median, "ratio", target, ratio.spread)]
    if ratio.lower_95 is not None:
        low = f"{metric}, lower 95%"
        rows.append(BenchRow(case, variant, low, ratio.lower_95, "ratio", target))
    return rows


def check_writable(path: Path) -> None:
    """Find out before a long run that its record can be written; changes nothing.

    Raises:
        ConfigError: it cannot.
    """
    target = path if path.exists() else path.parent
    if path.is_dir() or not target.exists() or not os.access(target, os.W_OK):
        raise ConfigError(f"cannot write {path}; give --json a file in a folder that exists")


def write_record(record: BenchRecord, path: Path) -> None:
    """Write a record as JSON.

    Raises:
        ConfigError: the path cannot be written.
    """
    try:
        path.write_text(record.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another --json") from None


def read_record(path: Path) -> BenchRecord:
    """A record from its JSON.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        return BenchRecord.from_json(path.read_text("utf-8"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is no record of tandem bench: {error}") from None

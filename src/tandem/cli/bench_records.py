"""What all of `tandem bench` share: the record, and progress."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tandem.bench.records import BenchRow

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", help="Also write the record to this file.", metavar="PATH"),
]


def command_line() -> str:
    """As it was typed."""
    return shlex.join(["tandem", *sys.argv[1:]])


def start(json_path: Path | None) -> dict[str, Any]:
    """Check that the record can be written; the machine as it is before the run."""
    from tandem.bench.machine import describe_machine
    from tandem.bench.records import check_writable

    if json_path is not None:
        check_writable(json_path)
    return describe_machine()


def write_so_far(
    suite: str,
    machine: dict[str, Any],
    rows: "Sequence[BenchRow]",
    json_path: Path | None,
    *notes: str,
) -> None:
    """Write what has been measured of a long run, if a path is given, so that it is not lost."""
    from tandem.bench.records import BenchRecord, write_record

    if json_path is not None:
        write_record(BenchRecord(suite, command_line(), machine, tuple(rows), notes), json_path)


def finish(
    suite: str,
    machine: dict[str, Any],
    rows: "Sequence[BenchRow]",
    json_path: Path | None,
    *notes: str,
) -> None:
    """Print what was measured, and write it if a path is given.

    Args:
        notes: what a reader must know beside the figures.
    """
    from tandem.bench.records import BenchRecord, write_record
    from tandem.bench.table import print_record

    record = BenchRecord(suite, command_line(), machine, tuple(rows), notes)
    print_record(record)
    if json_path is not None:
        write_record(record, json_path)


def report(what: str) -> None:
    """Progress, on standard error, so that it mixes with no result."""
    print(what, file=sys.stderr, flush=True)

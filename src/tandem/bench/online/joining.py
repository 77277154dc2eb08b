"""One record of several: cells of `tandem bench online` that were run apart."""

from collections.abc import Mapping

from tandem.bench.online.overall import PREDICTED, cell_rows, overall_rows
from tandem.bench.online.suite import SUITE
from tandem.bench.records import BenchRecord, BenchRow
from tandem.bench.same_machine import differing
from tandem.spec.errors import ConfigError


def joined(parts: Mapping[str, BenchRecord], command: str) -> BenchRecord:
    """All their cells in one record, with what they say together.

    Args:
        parts: by their files' names. command: by which they are joined; theirs become notes.

    Raises:
        ConfigError: another suite, machine or kind of time, a cell that two of them have, or a run
            that did not end.
    """
    (first_name, first), *others = parts.items()
    for name, part in parts.items():
        if part.suite != SUITE:
            raise ConfigError(f"{name} is of '{part.suite}'; only records of '{SUITE}' are joined")
        if part.unfinished is not None:
            raise ConfigError(f"{name} is {part.unfinished}; run the others, too, or leave it out")
    for name, part in others:
        field = differing(first.machine, part.machine)
        if field is not None:
            raise ConfigError(
                f"{name} and {first_name} differ in '{field}': {part.machine.get(field)!r} and "
                f"{first.machine.get(field)!r}; run both on one machine, at one commit",
            )
    rows = [row for part in parts.values() for row in cell_rows(part.rows)]
    _check(parts, rows)
    notes = [f"{name}: {part.command}" for name, part in parts.items()]
    notes += dict.fromkeys(note for part in parts.values() for note in part.notes)
    return BenchRecord(SUITE, command, first.machine, (*rows, *overall_rows(rows)), tuple(notes))


def _check(parts: Mapping[str, BenchRecord], rows: list[BenchRow]) -> None:
    words = {row.variant.partition(" ")[0] for row in rows}
    if len(words) > 1:
        raise ConfigError(f"figures of {' and '.join(sorted(words))} time do not go together")
    found: dict[str, str] = {}
    for name, part in parts.items():
        if not any(row.metric == PREDICTED for row in part.rows):
            raise ConfigError(f"{name} has no cell that was executed; only such cells are joined")
        for case in {row.case for row in cell_rows(part.rows)}:
            if case in found:
                raise ConfigError(f"{found[case]} and {name} both have '{case}'; leave one out")
            found[case] = name

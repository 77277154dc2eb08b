"""`tandem bench memory`: what the ledger predicts beside what drivers and the kernel saw."""

from collections.abc import Callable, Sequence

from tandem.bench.memory_cell import CellFigures, PlaceFigures, measure_cell
from tandem.bench.memory_cells import MemoryCell, all_cells
from tandem.bench.records import BenchRow
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB

SUITE = "memory"
MOST_OVER = 0.05
"""Of a prediction, most that may not have been used."""


def chosen_cells(only: str) -> tuple[MemoryCell, ...]:
    """Those whose names contain a text.

    Raises:
        ConfigError: none does.
    """
    cells = tuple(cell for cell in all_cells() if only in str(cell))
    if not cells:
        raise ConfigError(f"no cell of the memory suite contains '{only}'; leave --only out")
    return cells


def run_memory(
    cells: Sequence[MemoryCell],
    report: Callable[[str], None],
    *,
    labels: bool = False,
    grouped: bool = False,
) -> tuple[BenchRow, ...]:
    """A row for each memory of each cell: its peak, bounded by what was predicted.

    Args:
        report: told what is measured; what each user of memory took, if `labels`; misses.
        grouped: each cell has a control group of its own, whose peak counts too.

    Raises:
        TandemError: a cell cannot be built, or a group cannot be made.
    """
    rows: list[BenchRow] = []
    for number, cell in enumerate(cells, 1):
        report(f"{number} of {len(cells)}: {cell}")
        figures = measure_cell(cell, grouped=grouped)
        if labels:
            _report_labels(figures, report)
        rows += [_row(cell, place) for place in figures.places]
    for row in missed(rows):
        report(f"missed: {row.case}, {row.variant}: {row.fraction:.3f} of the prediction")
    return tuple(rows)


def missed(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """Rows whose peak is above the prediction, or further below it than allowed."""
    return [row for row in rows if not 1.0 - MOST_OVER <= (row.fraction or 0.0) <= 1.0]


def _row(cell: MemoryCell, place: PlaceFigures) -> BenchRow:
    peak, predicted = place.peak_bytes / MIB, place.predicted_bytes / MIB
    return BenchRow(str(cell), place.place, "peak memory", peak, "MiB", predicted)


def _report_labels(figures: CellFigures, report: Callable[[str], None]) -> None:
    for row in figures.labels:
        actual = "" if row.actual_bytes is None else f"{row.actual_bytes / MIB:10.1f}"
        report(f"    {row.location:8}{row.label:20}{row.predicted_bytes / MIB:10.1f}{actual}")
    for place in figures.places:
        predicted, peak = place.predicted_bytes / MIB, place.peak_bytes / MIB
        report(f"    {place.place:8}{'all':20}{predicted:10.1f}{peak:10.1f}")

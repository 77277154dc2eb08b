"""All cells as one record and one table. Nothing is measured: the record is the same everywhere."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tandem.bench.papers.apex import apex_cells
from tandem.bench.papers.apex_planned import planned_apex_cells
from tandem.bench.papers.apex_published import published_apex_cells
from tandem.bench.papers.cells import PaperCell, Role, median_error
from tandem.bench.papers.kvpr import kvpr_cells
from tandem.bench.papers.lm_offload import lm_offload_cells
from tandem.bench.papers.neo import neo_cells
from tandem.bench.papers.neo_planned import planned_neo_cells
from tandem.bench.papers.neo_published import published_neo_cells
from tandem.bench.papers.park_egger import park_egger_cells
from tandem.spec.errors import ConfigError

SUITE = "papers"
_TEXTS, _NUMBERS = ("where", "cell", "predictor", "role"), ("predicted", "published", "error")
_NOTE = "note"

CELLS: Mapping[str, tuple[Callable[[], Iterable[PaperCell]], ...]] = {
    "park-egger": (park_egger_cells,),
    "kvpr": (kvpr_cells,),
    "lm-offload": (lm_offload_cells,),
    "neo": (neo_cells, published_neo_cells, planned_neo_cells),
    "apex": (apex_cells, published_apex_cells, planned_apex_cells),
}
"""By paper, its `_PARTS`, of which some have the first alone."""
_PARTS = (
    "its cost model",
    "its own policy in virtual time, some seconds for each figure",
    "what the planner says, some seconds for each figure",
)


def cells_of(papers: Sequence[str], report: Callable[[str], None]) -> list[PaperCell]:
    """Every comparison, paper by paper; of all papers if none is named.

    Raises:
        ConfigError: there is no such paper.
    """
    for paper in papers:
        if paper not in CELLS:
            raise ConfigError(f"no paper '{paper}'; use one of: {', '.join(CELLS)}", param="paper")
    found: list[PaperCell] = []
    for paper in CELLS:
        if papers and paper not in papers:
            continue
        for part, source in zip(_PARTS, CELLS[paper], strict=False):
            report(f"{paper}: {part}")
            found += source()
    return found


def write_cells(cells: Sequence[PaperCell], command: str, path: Path) -> None:
    """Write them as JSON.

    Raises:
        ConfigError: the path cannot be written.
    """
    fields = {"suite": SUITE, "command": command, "cells": [cell.as_json() for cell in cells]}
    try:
        path.write_text(json.dumps(fields, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; choose another --json") from None


def print_cells(cells: Sequence[PaperCell], console: Console | None = None) -> None:
    """Print all cells, and each paper's median error over those that are scored; a line for each
    cell where nobody looks at a terminal.
    """
    console = console or Console()
    for paper in dict.fromkeys(cell.paper for cell in cells):
        own = [cell for cell in cells if cell.paper == paper]
        if console.is_terminal:
            console.print(_table(paper, own))
        else:
            console.print("\n".join(_lines(paper, own)), markup=False, soft_wrap=True)
        for line in summaries(own):
            console.print(line, markup=False, soft_wrap=True)
        console.print()


def summaries(cells: Sequence[PaperCell]) -> list[str]:
    """A line for each predictor of each table: median and largest error over the scored cells."""
    groups: dict[tuple[str, str], list[PaperCell]] = {}
    for cell in cells:
        if cell.role in (Role.SCORED, Role.BASELINE) and cell.error is not None:
            groups.setdefault((cell.place, cell.predictor), []).append(cell)
    lines: list[str] = []
    for (place, predictor), group in groups.items():
        worst = max(abs(cell.error or 0) for cell in group)
        lines.append(
            f"{place}, {predictor}: median error {median_error(group):.1%}, "
            f"largest {worst:.1%}, {len(group)} cells"
        )
    return lines


def _lines(paper: str, cells: Sequence[PaperCell]) -> Iterator[str]:
    """Below each other what is in a column, however long."""
    rows = [(*_TEXTS, *_NUMBERS, _NOTE), *map(_row, cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield paper
    for row in rows:
        texts = (f"{value:{width}}" for value, width in zip(row, widths, strict=True))
        yield "  ".join(texts).rstrip()


def _row(cell: PaperCell) -> tuple[str, ...]:
    error = "" if cell.error is None else f"{cell.error:+.1%}"
    values = (_number(cell.predicted, cell.unit), _number(cell.published, cell.unit))
    return (cell.place, cell.cell, cell.predictor, cell.role, *values, error, cell.note)


def _table(paper: str, cells: Sequence[PaperCell]) -> Table:
    table = Table(title=paper, title_justify="left")
    for name in _TEXTS:
        table.add_column(name, overflow="fold")
    for name in _NUMBERS:
        table.add_column(name, justify="right")
    table.add_column(_NOTE, overflow="fold")
    place = None
    for cell in cells:
        if place not in (None, cell.place):
            table.add_section()
        where, *values = _row(cell)
        table.add_row("" if cell.place == place else where, *values)
        place = cell.place
    return table


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.4g} {unit}"

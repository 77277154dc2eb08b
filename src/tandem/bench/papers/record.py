"""All cells as one record and one table. Nothing is measured: the record is the same everywhere."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_FILE_WIDTH = 150


CELLS: Mapping[str, tuple[Callable[[], Iterable[PaperCell]], ...]] = {
    "park-egger": (park_egger_cells,),
    "kvpr": (kvpr_cells,),
    "lm-offload": (lm_offload_cells,),
    "neo": (neo_cells, published_neo_cells, planned_neo_cells),
    "apex": (apex_cells, published_apex_cells, planned_apex_cells),
}
"""By paper: its cost model; its own policy in virtual time; and what the planner says. The latter
two take some seconds for each figure.
"""


def cells_of(papers: Sequence[str], report: Callable[[str], None]) -> list[PaperCell]:
    """Every comparison, paper by paper; of all papers if none is named.

    Raises:
        ConfigError: there is no such paper.
    """
    for paper in papers:
        if paper not in CELLS:
            raise ConfigError(f"no paper '{paper}'; use one of: {', '.join(CELLS)}", param="paper")
    found: list[PaperCell] = []
    for paper, sources in CELLS.items():
        if papers and paper not in papers:
            continue
        report(paper)
        found += (cell for source in sources for cell in source())
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
    """Print all cells, and each paper's median error over those that are scored."""
    console = console or _standard_output()
    for paper in dict.fromkeys(cell.paper for cell in cells):
        own = [cell for cell in cells if cell.paper == paper]
        console.print(_table(paper, own))
        for line in summaries(own):
            console.print(line)
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


def _standard_output() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)


def _table(paper: str, cells: Sequence[PaperCell]) -> Table:
    table = Table(title=paper, title_justify="left")
    for name in ("where", "cell", "predictor", "role"):
        table.add_column(name, overflow="fold")
    for name in ("predicted", "published", "error"):
        table.add_column(name, justify="right")
    table.add_column("note", overflow="fold")
    place = None
    for cell in cells:
        if place not in (None, cell.place):
            table.add_section()
        error = "" if cell.error is None else f"{cell.error:+.1%}"
        values = (_number(cell.predicted, cell.unit), _number(cell.published, cell.unit))
        where = "" if cell.place == place else cell.place
        table.add_row(where, cell.cell, cell.predictor, cell.role, *values, error, cell.note)
        place = cell.place
    return table


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "share":
        return f"{value:.1%}"
    return f"{value:,.0f} {unit}" if abs(value) >= 1000 else f"{value:.4g} {unit}"

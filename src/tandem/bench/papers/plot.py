"""Errors of the predictions, cell by cell, as a picture per paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.picture import check_folder, check_matplotlib, save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {
    Role.SCORED: "tab:blue",
    Role.CALIBRATED: "tab:green",
    Role.LISTED: "tab:gray",
    Role.BASELINE: "tab:orange",
}


def check_plots(folder: Path) -> None:
    """Find out beforehand that pictures can be drawn, and where.

    Raises:
        ConfigError: matplotlib is not installed, or `folder` is not one.
    """
    check_matplotlib()
    check_folder(folder)


def plot_cells(cells: Sequence[PaperCell], folder: Path) -> list[Path]:
    """Draw `PAPER.png` into `folder` for each paper with cells to compare; returns the files."""
    from matplotlib.figure import Figure

    compared = [cell for cell in cells if cell.error is not None and cell.role in _COLOURS]
    files: list[Path] = []
    for paper in dict.fromkeys(cell.paper for cell in compared):
        own = [cell for cell in compared if cell.paper == paper]
        rows = _rows(own)
        figure = Figure(figsize=(9, 1.2 + 0.2 * len(rows)), layout="constrained")
        _draw(figure.add_subplot(), paper, own, rows)
        files.append(folder / f"{paper}.png")
        save_picture(figure, files[-1])
    return files


def _rows(cells: Sequence[PaperCell]) -> dict[str, int]:
    """A line per published figure; all that predict it share the line."""
    labels = dict.fromkeys(_label(cell) for cell in cells)
    return {label: line for line, label in enumerate(labels)}


def _label(cell: PaperCell) -> str:
    return f"{cell.place}: {cell.cell}"


def _draw(axes: "Axes", paper: str, cells: Sequence[PaperCell], rows: Mapping[str, int]) -> None:
    from matplotlib.ticker import PercentFormatter

    for role, colour in _COLOURS.items():
        own = [cell for cell in cells if cell.role is role]
        if own:
            errors = [cell.error or 0 for cell in own]
            lines = [rows[_label(cell)] for cell in own]
            axes.scatter(errors, lines, color=colour, label=role.value, s=18)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.5)
    axes.set_xticks([-0.5, -0.25, 0, 0.25, 0.5, 2, 5])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("predicted over published, less one")
    axes.set_title(paper)
    axes.legend(fontsize=7)

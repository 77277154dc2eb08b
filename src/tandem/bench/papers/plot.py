"""Predicted over published, cell by cell, as a picture per paper."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench.papers.cells import PaperCell, Role
from tandem.spec.errors import ConfigError

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
    try:
        import matplotlib  # noqa: F401  (its presence is what is asked)
    except ImportError:
        raise ConfigError("--plot needs matplotlib; pip install 'tandem-llm[plot]'") from None
    if not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder; give --plot one that exists")


def plot_cells(cells: Sequence[PaperCell], folder: Path) -> list[Path]:
    """Draw `PAPER.png` into `folder` for each paper with cells to compare; returns the files."""
    from matplotlib.figure import Figure

    compared = [cell for cell in cells if cell.error is not None and cell.role in _COLOURS]
    files: list[Path] = []
    for paper in dict.fromkeys(cell.paper for cell in compared):
        own = [cell for cell in compared if cell.paper == paper]
        figure = Figure(figsize=(9, 1.2 + 0.2 * len(own)), layout="constrained")
        _draw(figure.add_subplot(), paper, own)
        files.append(folder / f"{paper}.png")
        figure.savefig(files[-1], dpi=110)
    return files


def _draw(axes: "Axes", paper: str, cells: Sequence[PaperCell]) -> None:
    for role, colour in _COLOURS.items():
        rows = [(y, cell) for y, cell in enumerate(cells) if cell.role is role]
        if rows:
            ratios = [1 + (cell.error or 0) for _, cell in rows]
            axes.scatter(ratios, [y for y, _ in rows], color=colour, label=role.value)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    labels = [f"{cell.place}: {cell.cell} ({cell.predictor})" for cell in cells]
    axes.set_yticks(range(len(cells)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("predicted over published")
    axes.set_title(paper)
    axes.legend(fontsize=7)

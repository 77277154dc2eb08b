"""Published gains beside the planner's, as a picture per paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench.papers.artifact import PREDICTOR
from tandem.bench.papers.cells import PaperCell
from tandem.bench.papers.planned import CEILING, PLANNER
from tandem.bench.picture import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_AUTO = f"{PLANNER}, auto"
_OWN = "planner, the paper's policy"
_COLOURS = {
    "published": "black",
    PREDICTOR: "tab:orange",
    _OWN: "tab:blue",
    _AUTO: "tab:green",
    CEILING: "tab:red",
}


def plot_gains(cells: Sequence[PaperCell], folder: Path) -> list[Path]:
    """Draw `PAPER-gains.png` into `folder` for each paper whose gains are predicted."""
    from matplotlib.figure import Figure

    files: list[Path] = []
    asked = [cell for cell in cells if _series(cell) and cell.predicted is not None]
    for paper in dict.fromkeys(cell.paper for cell in asked):
        own = [cell for cell in asked if cell.paper == paper]
        rows = {name: line for line, name in enumerate(dict.fromkeys(map(_name, own)))}
        figure = Figure(figsize=(9, 1.4 + 0.25 * len(rows)), layout="constrained")
        _draw(figure.add_subplot(), paper, own, rows)
        files.append(folder / f"{paper}-gains.png")
        save_picture(figure, files[-1])
    return files


def _series(cell: PaperCell) -> str | None:
    """What a predictor is drawn as; None: it is not."""
    if cell.predictor in (PREDICTOR, _AUTO, CEILING):
        return cell.predictor
    return _OWN if cell.predictor == f"{PLANNER}, {cell.paper}" else None


def _name(cell: PaperCell) -> str:
    return f"{cell.place}: {cell.cell}"


def _draw(axes: "Axes", paper: str, cells: Sequence[PaperCell], rows: Mapping[str, int]) -> None:
    from matplotlib.ticker import PercentFormatter

    for series, colour in _COLOURS.items():
        own = [cell for cell in cells if series in ("published", _series(cell))]
        shown = "published" if series == "published" else "predicted"
        gains: list[float] = [getattr(cell, shown) for cell in own]
        marker = "|" if series in ("published", CEILING) else "o"
        lines = [rows[_name(cell)] for cell in own]
        axes.scatter(gains, lines, color=colour, label=series, marker=marker, s=40)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xticks([-0.1, 0, 0.1, 0.3, 1, 3, 6])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_yticks(range(len(rows)), list(rows), fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("gain")
    axes.set_title(paper)
    axes.legend(fontsize=7)

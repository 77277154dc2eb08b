"""A picture of each part's record: how much of its bound every figure reaches."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.gpu.findings import partial_path
from benchmarks.gpu.parts import Part

from tandem.bench.records import BenchRecord, BenchRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_INCHES_PER_BAR, _INCHES_AROUND, _DPI = 0.24, 1.4, 110


class Bar(NamedTuple):
    """A figure over its bound.

    Attributes:
        low, high: of the samples, over the bound.
    """

    label: str
    share: float
    low: float
    high: float


def draw_plots(parts: Sequence[Part], folder: Path) -> list[Path]:
    """Draw `PART.png` beside each record that has figures with bounds; returns the files.

    Raises:
        ImportError: matplotlib is not installed.
    """
    files: list[Path] = []
    for part in parts:
        path = folder / f"{part.name}.json"
        path = path if path.exists() else partial_path(path)
        if not path.exists():
            continue
        record = BenchRecord.from_json(path.read_text(encoding="utf-8"))
        bars = list(bars_of(record.rows))
        if bars:
            files.append(folder / f"{part.name}.png")
            _draw(record, bars, files[-1])
    return files


def bars_of(rows: Sequence[BenchRow]) -> Iterator[Bar]:
    """Of figures that have a bound."""
    for row in rows:
        if row.fraction is None or not row.bound:
            continue
        low, high = row.spread or (row.value, row.value)
        label = f"{row.case}: {row.variant}, {row.metric}"
        yield Bar(label, row.fraction, low / row.bound, high / row.bound)


def _draw(record: BenchRecord, bars: Sequence[Bar], path: Path) -> None:
    from matplotlib.figure import Figure

    height = _INCHES_AROUND + _INCHES_PER_BAR * len(bars)
    figure = Figure(figsize=(12, height), layout="constrained")
    axes = figure.add_subplot()
    _draw_bars(axes, bars)
    axes.set_title(f"{record.suite}, {record.machine.get('git_commit')}", fontsize=9)
    figure.savefig(path, dpi=_DPI)


def _draw_bars(axes: "Axes", bars: Sequence[Bar]) -> None:
    lines = range(len(bars))
    below = [max(0.0, bar.share - bar.low) for bar in bars]
    above = [max(0.0, bar.high - bar.share) for bar in bars]
    axes.barh(lines, [bar.share for bar in bars], xerr=(below, above), height=0.7, capsize=2)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(lines, [bar.label for bar in bars], fontsize=6)
    axes.invert_yaxis()
    axes.set_xlabel("of the bound", fontsize=8)

"""Cells as a picture: what each policy reaches, and what requests wait as more of them come."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.bench.online.arrivals import Point
from tandem.bench.online.latency_rows import EACH, FIRST, executed_latencies
from tandem.bench.online.rows import figures_of
from tandem.bench.online.suite import CellOutcome
from tandem.bench.picture import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_WIDTH, _LATENCY_WIDTH = 7, 4  # inches


def plot_online(outcomes: Sequence[CellOutcome], path: Path) -> None:
    """A line of axes per cell: tokens per second; first tokens and time per token, where requests
    came over time.

    Raises:
        ConfigError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    latencies = (FIRST, EACH) if any(outcome.points for outcome in outcomes) else ()
    columns = 1 + len(latencies)
    size = (_WIDTH + _LATENCY_WIDTH * len(latencies), 4.2 * len(outcomes))
    figure = Figure(figsize=size, layout="constrained")
    lines = figure.subplots(len(outcomes), columns, squeeze=False)
    for (rates, *others), outcome in zip(lines, outcomes, strict=True):
        _draw_rates(rates, outcome)
        for axes, what in zip(others, latencies, strict=True):
            _draw_latency(axes, what, outcome.points)
    save_picture(figure, path)


def _draw_rates(axes: "Axes", outcome: CellOutcome) -> None:
    """Executed as bars, predicted and simulated as marks, what neither exceeds as lines."""
    figures = figures_of(outcome)
    names = [each.policy for each in figures]
    axes.barh(names, [each.executed for each in figures], color="lightsteelblue", label="executed")
    said = {each.policy: each.predicted for each in figures if each.predicted is not None}
    axes.plot([*said.values()], [*said], "k|", markersize=14, label="predicted")
    axes.plot([each.simulated for each in figures], names, "rx", label="simulated")
    bound = outcome.bound
    if bound is not None:
        axes.axvline(bound.of_plans, color="gray", linestyle="--", label="no plan exceeds")
        if bound.tokens_per_s > bound.of_plans:
            axes.axvline(bound.tokens_per_s, color="gray", linestyle=":", label="bound")
    axes.invert_yaxis()
    axes.set_xlabel(f"tokens/s, {outcome.bed.word}", fontsize=8)
    axes.set_title(str(outcome.cell), fontsize=7)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)


def _draw_latency(axes: "Axes", what: str, points: Sequence[Point]) -> None:
    """A colour per plan: its median as a line, its 99th percentile as a dashed one."""
    if not points:
        axes.set_axis_off()
        return
    plans = dict.fromkeys(point.policies for point in points)
    for policies in plans:
        own = [point for point in points if point.policies == policies]
        found = [executed_latencies(point)[what] for point in own]
        rates = [point.requests_per_s for point in own]
        label = ", ".join(policies)
        (line,) = axes.plot(rates, [each.p50_s for each in found], marker="o", label=label)
        axes.plot(rates, [each.p99_s for each in found], "--", color=line.get_color(), marker=".")
    axes.set_yscale("log")
    axes.set_xlabel("requests/s", fontsize=8)
    axes.set_ylabel(f"{what}, s: 50th and (dashed) 99th percentile", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)

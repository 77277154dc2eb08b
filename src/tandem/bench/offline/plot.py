"""Cells as a picture: what each policy makes, what it was predicted to, and what none exceeds."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from tandem.bench.offline.suite import OfflineOutcome
from tandem.bench.picture import save_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS = 2
_TITLE_WIDTH = 90  # characters


def plot_offline(outcomes: Sequence[OfflineOutcome], path: Path) -> None:
    """Axes per cell, two beside each other.

    Raises:
        ConfigError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    columns = min(_COLUMNS, len(outcomes))
    lines = -(-len(outcomes) // columns)
    figure = Figure(figsize=(7.5 * columns, 3.6 * lines), layout="constrained")
    axes = list(figure.subplots(lines, columns, squeeze=False).flat)
    for each, outcome in zip(axes, outcomes, strict=False):
        _draw_cell(each, outcome)
    for unused in axes[len(outcomes) :]:
        unused.set_axis_off()
    save_picture(figure, path)


def _draw_cell(axes: "Axes", outcome: OfflineOutcome) -> None:
    """Executed as bars, predicted as marks, the bound as a line."""
    jobs = [job for job in outcome.planned.jobs if job.policy in outcome.executed]
    predicted = {job.policy: job.option.tokens_per_s for job in jobs if job.option is not None}
    reached = {name: outcome.executed[name].tokens_per_s for name in predicted}
    reached |= {f"divided, {run.name}": run.executed.tokens_per_s for run in outcome.splits}
    names, rates = list(reached), list(reached.values())
    axes.barh(names, rates, color="lightsteelblue", label="executed")
    axes.plot(list(predicted.values()), list(predicted), "k|", markersize=14, label="predicted")
    if outcome.planned.ceiling is not None:
        most = outcome.planned.ceiling.tokens_per_s
        axes.axvline(most, color="gray", linestyle=":", label="bound")
    axes.invert_yaxis()
    axes.set_xlabel("tokens/s, virtual", fontsize=8)
    axes.set_title(fill(str(outcome.cell), _TITLE_WIDTH), fontsize=7)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)

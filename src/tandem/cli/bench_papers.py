"""`tandem bench papers`: predictions beside what the papers published."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.bench_records import JsonOption, command_line, report


def papers(
    json_path: JsonOption = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw a picture per paper into this folder.", metavar="DIR"),
    ] = None,
    paper: Annotated[
        list[str] | None,
        typer.Option(help="park-egger, kvpr, lm-offload, neo or apex; may be repeated."),
    ] = None,
) -> None:
    """What cost models and planner say beside the papers' figures.

    Measures nothing.
    """
    from tandem.bench.papers import record as suite
    from tandem.bench.papers.plot import check_plots, plot_cells
    from tandem.bench.papers.plot_gains import plot_gains
    from tandem.bench.records import check_writable

    if json_path is not None:
        check_writable(json_path)
    if plot is not None:
        check_plots(plot)
    cells = suite.cells_of(paper or (), report)
    suite.print_cells(cells)
    if json_path is not None:
        suite.write_cells(cells, command_line(), json_path)
    if plot is not None:
        plot_cells(cells, plot)
        plot_gains(cells, plot)

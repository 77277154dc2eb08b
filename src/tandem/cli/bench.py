"""`tandem bench SUITE`: measure this machine, every figure beside its limit."""

import typer

from tandem.cli.bench_host import batch, disk, engine, memory
from tandem.cli.bench_join import join
from tandem.cli.bench_kernels import copies, kernels, linear, perplexity, pool, prefill
from tandem.cli.bench_offline import offline
from tandem.cli.bench_online import calibration, online
from tandem.cli.bench_papers import papers
from tandem.cli.bench_virtual import overlap, placement, plan, preemption, simulator

_SUITES = (
    engine, kernels, prefill, copies, linear, pool, perplexity, memory, online, calibration,
    overlap, offline, batch, placement, disk, simulator, plan, preemption, papers, join,
)  # fmt: skip


def bench_app() -> typer.Typer:
    """The command group."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback(invoke_without_command=True)(bench)
    for suite in _SUITES:
        app.command()(suite)
    return app


def bench(context: typer.Context) -> None:
    """Measure this machine, every figure beside its limit.

    One suite per command.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())

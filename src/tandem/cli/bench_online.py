"""`tandem bench` of plans that are executed on an emulated accelerator."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start, write_so_far

if TYPE_CHECKING:
    from tandem.bench.online.arrivals import Arrivals
    from tandem.bench.online.cell import OnlineCell
    from tandem.bench.online.suite import CellOutcome, OnlineBench
    from tandem.bench.records import BenchRow


NoReplayOption = Annotated[
    bool,
    typer.Option(
        "--no-replay",
        help="Do not execute all runs' programs again, exactly, with a small model, to compare "
        "their tokens.",
    ),
]


def online(
    json_path: JsonOption = None,
    hardware: Annotated[
        list[str] | None,
        typer.Option(help="Name or TOML file of hardware to emulate; may be repeated."),
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Name of a model's shape; may be repeated.")
    ] = None,
    load: Annotated[
        list[str] | None,
        typer.Option(
            help="Mean tokens in and out, as 512:128; 1 in: decode only. May be repeated.",
            metavar="IN:OUT",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Beside auto and gpu-only; may be repeated. All, if none is named."),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            help="Of the engine's, choosing each step of auto's plan; may be repeated. auto, neo "
            "and apex, if neither one nor a policy is named."
        ),
    ] = None,
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
    pairs: Annotated[int, typer.Option(help="Windows of every plan.", min=1)] = 7,
    window: Annotated[float, typer.Option(help="Seconds of a window, at least.", min=0.1)] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the accelerator's truth.", min=0)] = 1,
    plain: Annotated[
        bool, typer.Option("--plain", help="The truth is as described: nothing is perturbed.")
    ] = False,
    virtual: Annotated[
        bool, typer.Option("--virtual", help="In virtual time: nothing of the host is measured.")
    ] = False,
    papers: Annotated[
        bool,
        typer.Option(
            "--papers",
            help="Instead, whole models on NEO's and APEX's machines, in the simulator alone.",
        ),
    ] = False,
    rate: Annotated[
        list[float] | None,
        typer.Option(
            help="Also requests of a Poisson process, at this share of what gpu-only completes; "
            "may be repeated.",
            min=0.01,
        ),
    ] = None,
    requests: Annotated[int, typer.Option(help="Of each --rate.", min=2)] = 200,
    no_replay: NoReplayOption = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw all of it into this PNG.", metavar="FILE")
    ] = None,
) -> None:
    """Plans executed on an emulated accelerator.

    Each policy's, on an accelerator whose times are emulated, and in the simulator.
    """
    machine = start(json_path)
    if plot is not None:
        from tandem.bench.picture import check_plot

        check_plot(plot)
    from tandem.bench.online.arrivals import Arrivals
    from tandem.bench.online.selection import choose_strategies

    arrivals = Arrivals(tuple(rate or ()), requests)
    strategies = choose_strategies(strategy, policies=bool(policy))
    if papers:
        _refuse_beside_papers(
            hardware=hardware, model=model, plot=plot, virtual=virtual, plain=plain
        )
        _simulate_papers(load, policy or (), strategies, window, arrivals, machine, json_path)
        return
    from tandem.bench.online.selection import check_policies, choose_cells, truth_of
    from tandem.bench.online.suite import OnlineBench

    check_policies(policy or ())
    cells = choose_cells(hardware, model, load, layers, truth_of(seed, plain=plain))
    bench = OnlineBench(
        tuple(policy or ()), pairs, window, virtual, arrivals, not no_replay, strategies=strategies
    )
    _execute(bench, cells, machine, json_path, plot)


def _execute(
    bench: "OnlineBench",
    cells: "Sequence[OnlineCell]",
    machine: dict[str, Any],
    json_path: Path | None,
    plot: Path | None,
) -> None:
    from tandem.kernels import native

    if not bench.virtual:
        native.choose_isa()  # refuses where there are no compiled kernels to profile
    from tandem.bench.online.overall import overall_rows
    from tandem.bench.online.rows import describe, rows_of
    from tandem.bench.online.suite import SUITE, run_online
    from tandem.bench.records import unfinished
    from tandem.bench.replay.replay import NOT_REPLAYED

    rows: list[BenchRow] = []
    num_done = 0

    def keep(outcome: "CellOutcome") -> None:
        nonlocal num_done
        num_done += 1
        rows.extend(rows_of(outcome))
        left = unfinished(num_done, len(cells))
        write_so_far(SUITE, machine, (*rows, *overall_rows(rows)), json_path, left)

    outcomes = run_online(bench, cells, report, keep)
    notes = () if bench.replays else (NOT_REPLAYED,)
    finish(SUITE, machine, (*rows, *overall_rows(rows)), json_path, *notes)
    if plot is not None:
        from tandem.bench.online.plot import plot_online

        plot_online(outcomes, plot)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def _refuse_beside_papers(**given: object) -> None:
    from tandem.spec.errors import ConfigError

    for name, value in given.items():
        if value:
            raise ConfigError(
                f"--papers has machines and models of its own and draws nothing; leave --{name} or "
                "--papers out",
                param=name,
            )


def _simulate_papers(
    load: "Sequence[str] | None",
    policies: "Sequence[str]",
    strategies: tuple[str, ...],
    window_s: float,
    arrivals: "Arrivals",
    machine: dict[str, Any],
    json_path: Path | None,
) -> None:
    from tandem.bench.online.selection import check_policies, choose_loads
    from tandem.bench.online.suite import SUITE, OnlineBench
    from tandem.bench.online.whole import describe, paper_cells, rows_of, run_whole

    check_policies(policies)
    bench = OnlineBench(
        tuple(policies), window_s=window_s, arrivals=arrivals, strategies=strategies
    )
    outcomes = run_whole(bench, list(paper_cells(choose_loads(load))), report)
    finish(SUITE, machine, [row for each in outcomes for row in rows_of(each)], json_path)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def calibration(
    json_path: JsonOption = None,
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
    truths: Annotated[int, typer.Option(help="For each cell and deviation.", min=1)] = 2,
    no_replay: NoReplayOption = False,
) -> None:
    """What --calibrate makes of wrong times.

    Steps chosen by them beside steps chosen by right ones, in virtual time.
    """
    machine = start(json_path)
    from tandem.bench.online import calibrated as suite
    from tandem.bench.replay.replay import NOT_REPLAYED

    bench = replace(suite.CalibrationBench(), layers=layers, truths=truths, replays=not no_replay)
    outcomes = suite.run_calibration(bench, report)
    notes = (NOT_REPLAYED,) if no_replay else ()
    finish(suite.SUITE, machine, suite.rows_of(bench, outcomes), json_path, *notes)
    print("\n".join(suite.describe(outcomes)))

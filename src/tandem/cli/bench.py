"""`tandem bench SUITE`: measure this machine, every figure beside its limit."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tandem.bench.offline.cell import OfflineCell
    from tandem.bench.online.arrivals import Arrivals
    from tandem.bench.records import BenchRow

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", help="Also write the record to this file.", metavar="PATH"),
]


def bench_app() -> typer.Typer:
    """The command group."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback(invoke_without_command=True)(bench)
    app.command()(engine)
    app.command()(kernels)
    app.command()(prefill)
    app.command()(copies)
    app.command()(linear)
    app.command()(pool)
    app.command()(perplexity)
    app.command()(memory)
    app.command()(online)
    app.command()(calibration)
    app.command()(overlap)
    app.command()(offline)
    app.command()(batch)
    app.command()(placement)
    app.command()(disk)
    app.command()(simulator)
    app.command()(papers)
    return app


def bench(context: typer.Context) -> None:
    """Measure this machine, every figure beside its limit.

    One suite per command.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def engine(
    json_path: JsonOption = None,
    part: Annotated[
        list[str] | None,
        typer.Option(
            help="scheduler, growth or host; may be repeated. All but growth, if none is named."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: smaller model, fewer repeats.")
    ] = False,
) -> None:
    """The scheduler's steps; the host beside transformers.

    The scheduler's time per step, and the host alone against transformers.
    """
    machine = _start(json_path)
    from tandem.bench.engine import FULL, QUICK, SUITE, run_engine

    bench = (QUICK if quick else FULL).with_parts(part or ())
    _finish(SUITE, machine, run_engine(bench, _report), json_path)


def kernels(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape in float16.")
    ] = False,
) -> None:
    """Decode attention on the CPU beside its limit and torch."""
    machine = _start(json_path)
    from tandem.bench import kernels as suite

    config = suite.quick() if quick else suite.full()
    _finish(suite.SUITE, machine, suite.run_kernels(config, _report), json_path)


def prefill(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape in bfloat16.")
    ] = False,
) -> None:
    """Prefill attention on the CPU beside torch's best."""
    machine = _start(json_path)
    from tandem.bench import prefill as suite

    config = suite.quick() if quick else suite.full()
    _finish(suite.SUITE, machine, suite.run_prefill(config, _report), json_path)


def copies(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds.")] = False,
) -> None:
    """Copies of KV blocks in host memory.

    Between pools, beside torch and reading.
    """
    machine = _start(json_path)
    from tandem.bench import copies as suite

    config = suite.quick() if quick else suite.full()
    _finish(suite.SUITE, machine, suite.run_copies(config, _report), json_path)


def linear(
    json_path: JsonOption = None,
    only: Annotated[
        str, typer.Option(help="Measure cases whose names contain this.", metavar="TEXT")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape, float16 and int8.")
    ] = False,
) -> None:
    """Linear maps on the CPU beside their limit and torch."""
    machine = _start(json_path)
    from tandem.bench import linear as suite

    config = suite.quick(only) if quick else suite.full(only)
    _finish(suite.SUITE, machine, suite.run_linear(config, _report), json_path)


def pool(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A second.")] = False,
) -> None:
    """How long work for the CPU's threads waits.

    Until it begins, and until its end is known.
    """
    machine = _start(json_path)
    from tandem.bench import pool as suite

    config = suite.quick() if quick else suite.full()
    _finish(suite.SUITE, machine, suite.run_pool(config, _report), json_path)


def perplexity(
    texts: Annotated[
        list[Path], typer.Argument(help="JSON lines with a 'text' that the model never saw.")
    ],
    json_path: JsonOption = None,
    model: Annotated[str, typer.Option(help="Directory, or demo.")] = "demo",
) -> None:
    """What weights and KV in 8 and 4 bits cost.

    In perplexity on held-out text.
    """
    machine = _start(json_path)
    from tandem.bench.perplexity import SUITE, run_perplexity

    _finish(SUITE, machine, run_perplexity(model, texts, _report), json_path)


def memory(
    json_path: JsonOption = None,
    only: Annotated[
        str, typer.Option(help="Measure cells whose names contain this.", metavar="TEXT")
    ] = "",
    labels: Annotated[
        bool, typer.Option("--labels", help="Also tell what each user of memory took.")
    ] = False,
    cgroup: Annotated[
        bool, typer.Option("--cgroup", help="Each in a control group, whose peak counts too.")
    ] = False,
) -> None:
    """Memory as predicted beside its peak.

    Of the device and of the process.
    """
    machine = _start(json_path)
    from tandem.bench import memory as suite

    cells = suite.chosen_cells(only)
    rows = suite.run_memory(cells, _report, labels=labels, grouped=cgroup)
    _finish(suite.SUITE, machine, rows, json_path)


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
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Also execute each plan's programs exactly, with a small model, and compare its "
            "tokens with a plain engine's.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw all of it into this PNG.", metavar="FILE")
    ] = None,
) -> None:
    """Plans executed on an emulated accelerator.

    Each policy's, on an accelerator whose times are emulated, and in the simulator.
    """
    machine = _start(json_path)
    if plot is not None:
        from tandem.bench.picture import check_plot

        check_plot(plot)
    from tandem.bench.online.arrivals import Arrivals

    arrivals = Arrivals(tuple(rate or ()), requests)
    if papers:
        _refuse_beside_papers(
            hardware=hardware, model=model, plot=plot, virtual=virtual, plain=plain, replay=replay
        )
        _simulate_papers(load, policy or (), window, arrivals, machine, json_path)
        return
    from tandem.bench.online.selection import check_policies, choose_cells, truth_of
    from tandem.kernels import native

    check_policies(policy or ())
    cells = choose_cells(hardware, model, load, layers, truth_of(seed, plain=plain))
    if not virtual:
        native.choose_isa()  # refuses where there are no compiled kernels to profile
    from tandem.bench.online.rows import describe, median_errors, rows_of
    from tandem.bench.online.suite import SUITE, OnlineBench, run_online

    bench = OnlineBench(tuple(policy or ()), pairs, window, virtual, arrivals, replay)
    outcomes = run_online(bench, cells, _report)
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    _finish(SUITE, machine, (*rows, *median_errors(outcomes)), json_path)
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
    window_s: float,
    arrivals: "Arrivals",
    machine: dict[str, Any],
    json_path: Path | None,
) -> None:
    from tandem.bench.online.selection import check_policies, choose_loads
    from tandem.bench.online.suite import SUITE, OnlineBench
    from tandem.bench.online.whole import describe, paper_cells, rows_of, run_whole

    check_policies(policies)
    bench = OnlineBench(tuple(policies), window_s=window_s, arrivals=arrivals)
    outcomes = run_whole(bench, list(paper_cells(choose_loads(load))), _report)
    _finish(SUITE, machine, [row for each in outcomes for row in rows_of(each)], json_path)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def calibration(
    json_path: JsonOption = None,
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
    truths: Annotated[int, typer.Option(help="For each cell.", min=1)] = 6,
) -> None:
    """What --calibrate makes of wrong times.

    Steps chosen by them beside steps chosen by right ones, in virtual time.
    """
    machine = _start(json_path)
    from tandem.bench.online import calibrated as suite

    bench = replace(suite.CalibrationBench(), layers=layers, truths=truths)
    outcomes = suite.run_calibration(bench, _report)
    _finish(suite.SUITE, machine, suite.rows_of(bench, outcomes), json_path)
    print("\n".join(suite.describe(outcomes)))


def overlap(
    json_path: JsonOption = None,
    hardware: Annotated[
        str, typer.Option(help="Name or TOML file of the hardware to emulate.")
    ] = "rtx4090-scaled",
    model: Annotated[str, typer.Option(help="Name of a model's shape.")] = "llama-3.1-8b",
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
    context: Annotated[
        int, typer.Option(help="Tokens of each request, in the mean.", min=1)
    ] = 1024,
    device_rows: Annotated[
        int, typer.Option(help="Requests with their KV on the accelerator.", min=1)
    ] = 32,
    host_rows: Annotated[int, typer.Option(help="Requests with it on the host.", min=1)] = 32,
    strategy: Annotated[
        list[str] | None, typer.Option(help="May be repeated. All, if none is named.")
    ] = None,
) -> None:
    """One step of each strategy, drawn queue by queue.

    In virtual time: nothing is measured.
    """
    machine = _start(json_path)
    from tandem.bench import overlap as suite
    from tandem.cli.overlap_text import overlap_text

    bench = suite.OverlapBench(hardware, model, layers, context, device_rows, host_rows)
    if strategy:
        bench = replace(bench, strategies=tuple(dict.fromkeys(strategy)))
    outcomes = suite.run_overlap(bench, _report)
    _finish(suite.SUITE, machine, suite.rows_of(bench, outcomes), json_path)
    print("\n".join(overlap_text(outcomes)))


def offline(
    json_path: JsonOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Beside auto; may be repeated. All offline ones, if none is named."),
    ] = None,
    only: Annotated[
        str, typer.Option(help="Run cells whose names contain this.", metavar="TEXT")
    ] = "",
    layers: Annotated[int, typer.Option(help="Of the models' layers, how many.", min=3)] = 8,
    seed: Annotated[int, typer.Option(help="Of the machines' truth.", min=0)] = 1,
    plain: Annotated[
        bool, typer.Option("--plain", help="The truth is as described: nothing is perturbed.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two cells of five.")] = False,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Instead of policies, auto without one of its means after the other.",
        ),
    ] = False,
) -> None:
    """Batch jobs by plans, on emulated machines.

    By each offline policy's, in virtual time.
    """
    machine = _start(json_path)
    from tandem.bench.offline.rows import describe, rows_of
    from tandem.bench.offline.selection import check_policies, choose_cells
    from tandem.bench.offline.suite import SUITE, run_offline
    from tandem.bench.online.selection import truth_of

    check_policies(policy or ())
    cells = choose_cells(only, layers, truth_of(seed, plain=plain), quick=quick)
    if ablations:
        _ablate(policy or (), cells, machine, json_path)
        return
    outcomes = run_offline(policy or (), cells, _report)
    rows = tuple(row for outcome in outcomes for row in rows_of(outcome))
    _finish(SUITE, machine, rows, json_path)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def _ablate(
    policies: "Sequence[str]",
    cells: "Sequence[OfflineCell]",
    machine: dict[str, Any],
    json_path: Path | None,
) -> None:
    from tandem.bench.offline.ablations import describe, rows_of, run_ablations
    from tandem.bench.offline.suite import SUITE
    from tandem.spec.errors import ConfigError

    if policies:
        raise ConfigError(
            "--ablations has policies of its own; leave --policy or --ablations out", param="policy"
        )
    outcomes = run_ablations(cells, _report)
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    _finish(SUITE, machine, rows, json_path)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def batch(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: smaller model, fewer requests.")
    ] = False,
) -> None:
    """Batch jobs on the host beside transformers."""
    machine = _start(json_path)
    from tandem.bench.batch.suite import FULL, QUICK, SUITE, run_batch

    _finish(SUITE, machine, run_batch(QUICK if quick else FULL, _report), json_path)


def placement(
    json_path: JsonOption = None,
    hardware: Annotated[
        str, typer.Option(help="Name or TOML file of the hardware to emulate.")
    ] = "small",
    model: Annotated[str, typer.Option(help="Name of a model's shape.")] = "llama-3.1-8b",
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
) -> None:
    """One request whose weights do not fit.

    On an accelerator whose times are emulated.
    """
    machine = _start(json_path)
    from tandem.bench.placement import SUITE, PlacementBench, run_placement
    from tandem.models.catalogue import plannable_spec

    bench = PlacementBench(plannable_spec(model), model, hardware, layers)
    _finish(SUITE, machine, run_placement(bench, _report), json_path)


def disk(
    json_path: JsonOption = None,
    directory: Annotated[
        Path, typer.Option("--dir", help="Folder on the disk to measure.", metavar="DIR")
    ] = Path("."),
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: smaller model, fewer repeats.")
    ] = False,
) -> None:
    """Decode with weights on disk, beside its rate.

    On the host alone.
    """
    machine = _start(json_path)
    from tandem.bench import disk as suite

    config = suite.quick(directory) if quick else suite.full(directory)
    _finish(suite.SUITE, machine, suite.run_disk(config, _report), json_path)


def simulator(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds.")] = False,
) -> None:
    """Simulated steps per second of processor time.

    With and without runs of steps that are skipped, whose outcomes must be equal.
    """
    machine = _start(json_path)
    from tandem.bench import simulator as suite

    bench = suite.QUICK if quick else suite.FULL
    _finish(suite.SUITE, machine, suite.run_simulator(bench, _report), json_path)


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
    cells = suite.cells_of(paper or (), _report)
    suite.print_cells(cells)
    if json_path is not None:
        suite.write_cells(cells, shlex.join(["tandem", *sys.argv[1:]]), json_path)
    if plot is not None:
        plot_cells(cells, plot)
        plot_gains(cells, plot)


def _start(json_path: Path | None) -> dict[str, Any]:
    """Check that the record can be written; the machine as it is before the run."""
    from tandem.bench.machine import describe_machine
    from tandem.bench.records import check_writable

    if json_path is not None:
        check_writable(json_path)
    return describe_machine()


def _finish(
    suite: str, machine: dict[str, Any], rows: "Sequence[BenchRow]", json_path: Path | None
) -> None:
    from tandem.bench.records import BenchRecord, write_record
    from tandem.bench.table import print_record

    command = shlex.join(["tandem", *sys.argv[1:]])
    record = BenchRecord(suite, command, machine, tuple(rows))
    print_record(record)
    if json_path is not None:
        write_record(record, json_path)


def _report(what: str) -> None:
    """Progress, on standard error, so that it mixes with no result."""
    print(what, file=sys.stderr, flush=True)

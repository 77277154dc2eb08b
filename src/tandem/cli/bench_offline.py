"""`tandem bench offline`: batch jobs by plans, on emulated machines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start, write_so_far

if TYPE_CHECKING:
    from tandem.bench.offline.cell import OfflineCell
    from tandem.bench.records import BenchRow
    from tandem.runtime.paced.perturbed_rates import Perturbation

Outcome = TypeVar("Outcome")


def offline(
    json_path: JsonOption = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Beside auto; may be repeated. All offline ones, if none is named."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="Run cells whose names contain this; may be repeated.", metavar="TEXT"),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(help="Of the models' layers, how many; else each cell's own number.", min=3),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the machines' truth.", min=0)] = 1,
    plain: Annotated[
        bool, typer.Option("--plain", help="The truth is as described: nothing is perturbed.")
    ] = False,
    grid: Annotated[
        bool,
        typer.Option("--grid", help="Instead, the papers' own lengths and sizes of job."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Two cells of six.")] = False,
    ablations: Annotated[
        bool,
        typer.Option(
            "--ablations",
            help="Instead of policies, auto without one of its means after the other.",
        ),
    ] = False,
    no_host: Annotated[
        bool,
        typer.Option(
            "--no-host", help="With --ablations: nothing is measured on the machine at hand."
        ),
    ] = False,
    few_bits: Annotated[
        bool,
        typer.Option(
            "--few-bits",
            help="Instead, policies that may keep weights and KV in 4 bits, and KVPR's with both.",
        ),
    ] = False,
    real_time: Annotated[
        bool,
        typer.Option(
            "--real-time",
            help="Instead, one job on a scaled pair, in real time beside virtual time: two cores, "
            "a quiet machine.",
        ),
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw each policy into this PNG.", metavar="FILE")
    ] = None,
) -> None:
    """Batch jobs by plans, on emulated machines.

    By each offline policy's, in virtual time.
    """
    machine = start(json_path)
    if plot is not None:
        from tandem.bench.picture import check_plot

        check_plot(plot)
    from tandem.bench.offline.rows import describe, rows_of
    from tandem.bench.offline.selection import check_policies, check_room, choose_cells
    from tandem.bench.offline.suite import run_offline
    from tandem.bench.online.selection import truth_of

    check_policies(policy or ())
    if real_time:
        cells_of = {"only": only, "layers": layers, "grid": grid, "quick": quick}
        cells_of |= {"ablations": ablations, "few-bits": few_bits, "plot": plot}
        _refuse_beside("real-time", why="one cell of its own", **cells_of)
        _in_real_time(policy or (), truth_of(seed, plain=plain), machine, json_path)
        return
    alone = "ablations" if ablations else "few-bits" if few_bits else None
    if alone is not None:
        others = {"few-bits": ablations and few_bits}
        _refuse_beside(alone, why="policies of its own", policy=policy, plot=plot, **others)
    if no_host and not ablations:
        _refuse_no_host()
    chosen = choose_cells(only or (), layers, truth_of(seed, plain=plain), quick=quick, grid=grid)
    cells, left_out = check_room(chosen)
    for line in left_out:
        report(line)
    record = _Record(machine, json_path, left_out, len(cells))
    if ablations:
        _ablate(cells, record, on_host=not no_host)
        return
    if few_bits:
        _allow_few_bits(cells, record)
        return
    outcomes = record.of(run_offline(policy or (), cells, report), rows_of)
    if plot is not None:
        from tandem.bench.offline.plot import plot_offline

        plot_offline(outcomes, plot)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))


def _in_real_time(
    policies: "Sequence[str]", truth: "Perturbation", machine: dict[str, Any], path: Path | None
) -> None:
    from tandem.bench.offline.real_time import RealTimeJob, describe, rows_of, run_real_time
    from tandem.bench.offline.suite import SUITE

    job = RealTimeJob(tuple(dict.fromkeys(("auto", *policies)))) if policies else RealTimeJob()
    outcome = run_real_time(job, truth, report)
    finish(SUITE, machine, list(rows_of(outcome)), path)
    print("\n".join(describe(outcome)))


def _refuse_beside(flag: str, *, why: str, **given: object) -> None:
    from tandem.spec.errors import ConfigError

    named = [name for name, value in given.items() if value]
    if named:
        raise ConfigError(
            f"--{flag} has {why}; leave --{named[0]} or --{flag} out",
            param=named[0],
        )


def _refuse_no_host() -> None:
    from tandem.spec.errors import ConfigError

    raise ConfigError(
        "--no-host is of --ablations, beside which alone the host is measured; leave it out",
        param="no_host",
    )


def _allow_few_bits(cells: "Sequence[OfflineCell]", record: "_Record") -> None:
    from tandem.bench.offline.few_bits import describe, rows_of, run_few_bits

    for outcome in record.of(run_few_bits(cells, report), rows_of):
        print("\n".join(describe(outcome)))


def _ablate(cells: "Sequence[OfflineCell]", record: "_Record", *, on_host: bool) -> None:
    from tandem.bench.offline.ablations import describe, rows_of, run_ablations

    for outcome in record.of(run_ablations(cells, report, on_host=on_host), rows_of):
        print("\n".join(describe(outcome)))


@dataclass(frozen=True, slots=True)
class _Record:
    """Where the rows of so many cells go; nothing is lost if a run ends before all are done.

    Attributes:
        left_out: cells that are not run, and why.
    """

    machine: dict[str, Any]
    json_path: Path | None
    left_out: tuple[str, ...]
    num_cells: int

    def of(
        self,
        outcomes: Iterable[Outcome],
        rows_of: "Callable[[Outcome], Iterable[BenchRow]]",
    ) -> list[Outcome]:
        """All outcomes, one a cell; written whenever one is there."""
        from tandem.bench.offline.suite import SUITE

        found: list[Outcome] = []
        rows: list[BenchRow] = []
        for outcome in outcomes:
            found.append(outcome)
            rows += rows_of(outcome)
            unfinished = f"unfinished: {len(found)} of {self.num_cells} cells"
            write_so_far(SUITE, self.machine, rows, self.json_path, *self.left_out, unfinished)
        finish(SUITE, self.machine, rows, self.json_path, *self.left_out)
        return found

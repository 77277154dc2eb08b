"""`tandem bench offline`: batch jobs by plans, on emulated machines."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from tandem.cli.bench_records import (
    JsonOption,
    command_line,
    finish,
    report,
    start,
    write_so_far,
)

if TYPE_CHECKING:
    from tandem.bench.offline.cell import OfflineCell
    from tandem.bench.offline.resumed import Done
    from tandem.bench.records import BenchRow
    from tandem.runtime.paced.perturbed_rates import Perturbation


class _OfCell(Protocol):
    @property
    def cell(self) -> "OfflineCell": ...


Outcome = TypeVar("Outcome", bound=_OfCell)


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
    held_out: Annotated[
        bool,
        typer.Option(
            "--held-out",
            help="Instead, auto's plans for machines as described, whose truth differs, with and "
            "without what is measured as the job runs.",
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
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on where the record at --json ends: cells that it has are kept."
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
        cells_of |= {"ablations": ablations, "few-bits": few_bits, "held-out": held_out}
        cells_of |= {"resume": resume, "plot": plot}
        _refuse_beside("real-time", why="one cell of its own", **cells_of)
        _in_real_time(policy or (), truth_of(seed, plain=plain), machine, json_path)
        return
    modes = {"ablations": ablations, "few-bits": few_bits, "held-out": held_out}
    alone = [name for name, asked in modes.items() if asked]
    if alone:
        beside = {"policy": policy, "plot": plot, **dict.fromkeys(alone[1:], True)}
        _refuse_beside(alone[0], why="policies of its own", **beside)
    if resume and plot is not None:
        _refuse_beside("resume", why="nothing to draw of cells that are done", plot=plot)
    done = _done(json_path, machine) if resume else None
    if no_host and not ablations:
        _refuse_no_host()
    truth = truth_of(seed, plain=plain)
    chosen = choose_cells(only or (), layers, truth, quick=quick, grid=grid)
    cells, left_out = check_room(chosen)
    for line in left_out:
        report(line)
    whole = cells
    if resume and only:
        whole, _ = check_room(choose_cells((), layers, truth, quick=quick, grid=grid))
    record = _Record(machine, json_path, left_out, tuple(cells), tuple(whole), done)
    cells = record.to_run
    if ablations:
        _ablate(cells, record, on_host=not no_host)
        return
    if few_bits:
        _allow_few_bits(cells, record)
        return
    if held_out:
        _hold_out(cells, record)
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


def _done(path: Path | None, machine: dict[str, Any]) -> "Done":
    """Raises:
    ConfigError: there is no record to go on with, or it is another's.
    """
    from tandem.bench.offline.resumed import done_before
    from tandem.spec.errors import ConfigError

    if path is None:
        raise ConfigError("--resume goes on with a record; add --json FILE", param="resume")
    return done_before(path, command_line(), machine)


def _allow_few_bits(cells: "Sequence[OfflineCell]", record: "_Record") -> None:
    from tandem.bench.offline.few_bits import describe, rows_of, run_few_bits

    for outcome in record.of(run_few_bits(cells, report), rows_of):
        print("\n".join(describe(outcome)))


def _hold_out(cells: "Sequence[OfflineCell]", record: "_Record") -> None:
    from tandem.bench.offline.held_out import describe, rows_of, run_held_out

    for outcome in record.of(run_held_out(cells, report), rows_of):
        print("\n".join(describe(outcome)))


def _ablate(cells: "Sequence[OfflineCell]", record: "_Record", *, on_host: bool) -> None:
    from tandem.bench.offline.ablations import describe, rows_of, run_ablations

    for outcome in record.of(run_ablations(cells, report, on_host=on_host), rows_of):
        print("\n".join(describe(outcome)))


@dataclass(frozen=True, slots=True)
class _Record:
    """Where the rows of cells go; nothing is lost if a run ends before all are done.

    Attributes:
        left_out: cells that are not run, and why.
        cells: that are asked for. whole: of which the record is to have rows in the end.
        done: of earlier runs; None: this one does not go on with any.
    """

    machine: dict[str, Any]
    json_path: Path | None
    left_out: tuple[str, ...]
    cells: "tuple[OfflineCell, ...]"
    whole: "tuple[OfflineCell, ...]"
    done: "Done | None" = None

    @property
    def to_run(self) -> "list[OfflineCell]":
        """What no earlier run did."""
        return [cell for cell in self.cells if not self._has(cell)]

    def of(
        self,
        outcomes: Iterable[Outcome],
        rows_of: "Callable[[Outcome], Iterable[BenchRow]]",
    ) -> list[Outcome]:
        """All outcomes, one a cell; written whenever one is there."""
        from tandem.bench.offline.cut_ratios import ratio_rows
        from tandem.bench.offline.suite import SUITE

        if not self.to_run:
            self._tell_all_is_done()
            return []
        found: list[Outcome] = []
        rows: list[BenchRow] = [] if self.done is None else [*self.done.rows]
        for outcome in outcomes:
            found.append(outcome)
            rows += [*rows_of(outcome), *ratio_rows(outcome.cell)]
            notes = self._notes(len(found), ended=False)
            write_so_far(SUITE, self.machine, rows, self.json_path, *notes)
        finish(SUITE, self.machine, rows, self.json_path, *self._notes(len(found), ended=True))
        return found

    def _notes(self, num_found: int, *, ended: bool) -> Iterable[str]:
        """Of this run and those before, each once.

        Args:
            num_found: cells of this run that are done.
        """
        from tandem.bench.records import unfinished

        before = () if self.done is None else self.done.notes
        num_done = sum(map(self._has, self.whole)) + num_found
        is_whole = ended and num_done >= len(self.whole)
        left = () if is_whole else (unfinished(num_done, len(self.whole)),)
        return dict.fromkeys((*before, *self.left_out, *left))

    def _has(self, cell: "OfflineCell") -> bool:
        return self.done is not None and self.done.has(cell)

    def _tell_all_is_done(self) -> None:
        """The record stays as it is: it is of other runs."""
        from tandem.bench.table import print_record

        report("all these cells are done: nothing is run, and the record stays as it is")
        if self.done is not None and self.done.record is not None:
            print_record(self.done.record)

"""`tandem bench offline`: batch jobs by plans, on emulated machines."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.bench_records import JsonOption, command_line, finish, report, start
from tandem.cli.offline_record import OfflineRecord

if TYPE_CHECKING:
    from tandem.bench.offline.resumed import Done
    from tandem.runtime.paced.perturbed_rates import Perturbation


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
    from tandem.bench.offline.selection import check_policies
    from tandem.bench.online.selection import truth_of

    check_policies(policy or ())
    truth = truth_of(seed, plain=plain)
    asked = {"ablations": ablations, "few-bits": few_bits, "held-out": held_out}
    cells = {"only": only, "layers": layers, "grid": grid, "quick": quick}
    if real_time:
        _refuse_beside("real-time", "one cell of its own", cells, asked, resume=resume, plot=plot)
        _in_real_time(policy or (), truth, machine, json_path)
        return
    modes = [name for name, is_asked in asked.items() if is_asked]
    for name in modes[:1]:
        others = dict.fromkeys(modes[1:], True)
        _refuse_beside(name, "policies of its own", others, policy=policy, plot=plot)
    if resume:
        _refuse_beside("resume", "nothing to draw of cells that are done", plot=plot)
    if no_host and not ablations:
        _refuse_no_host()
    done = _done(json_path, machine) if resume else None
    record = _record(cells, truth, machine, json_path, done)
    if ablations:
        _ablate(record, on_host=not no_host)
    elif few_bits:
        _allow_few_bits(record)
    elif held_out:
        _hold_out(record)
    else:
        _by_policies(policy or (), record, plot)


def _record(
    asked: Mapping[str, Any],
    truth: "Perturbation",
    machine: dict[str, Any],
    path: Path | None,
    done: "Done | None",
) -> OfflineRecord:
    """Of the cells that are asked for, which have room.

    Args:
        asked: flags that choose cells. done: by earlier runs, with which this one goes on.
    """
    from tandem.bench.offline.selection import check_room, choose_cells

    only, layers = asked["only"] or (), asked["layers"]
    choose = partial(choose_cells, layers=layers, truth=truth)
    sizes = {"quick": asked["quick"], "grid": asked["grid"]}
    cells, left_out = check_room(choose(only, **sizes))
    for line in left_out:
        report(line)
    whole = cells
    if done is not None and only:
        whole, _ = check_room(choose((), **sizes))
    return OfflineRecord(machine, path, left_out, tuple(cells), tuple(whole), done)


def _by_policies(policies: "Sequence[str]", record: OfflineRecord, plot: Path | None) -> None:
    from tandem.bench.offline.rows import describe, rows_of
    from tandem.bench.offline.suite import run_offline

    outcomes = record.of(run_offline(policies, record.to_run, report), rows_of)
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


def _refuse_beside(flag: str, why: str, *flags: Mapping[str, object], **given: object) -> None:
    """A flag that has something, beside any of the others that are given."""
    from tandem.spec.errors import ConfigError

    every = [item for each in (*flags, given) for item in each.items()]
    named = [name for name, value in every if value]
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


def _allow_few_bits(record: OfflineRecord) -> None:
    from tandem.bench.offline.few_bits import describe, rows_of, run_few_bits

    for outcome in record.of(run_few_bits(record.to_run, report), rows_of):
        print("\n".join(describe(outcome)))


def _hold_out(record: OfflineRecord) -> None:
    from tandem.bench.offline.held_out import describe, rows_of, run_held_out

    for outcome in record.of(run_held_out(record.to_run, report), rows_of):
        print("\n".join(describe(outcome)))


def _ablate(record: OfflineRecord, *, on_host: bool) -> None:
    from tandem.bench.offline.ablations import describe, rows_of, run_ablations

    for outcome in record.of(run_ablations(record.to_run, report, on_host=on_host), rows_of):
        print("\n".join(describe(outcome)))

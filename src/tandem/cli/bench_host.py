"""`tandem bench` of the host alone: engines, jobs, memory, a disk."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start


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
    machine = start(json_path)
    from tandem.bench.engine import FULL, QUICK, SUITE, run_engine

    bench = (QUICK if quick else FULL).with_parts(part or ())
    finish(SUITE, machine, run_engine(bench, report), json_path)


def batch(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: smaller model, fewer requests.")
    ] = False,
) -> None:
    """Batch jobs on the host beside transformers."""
    machine = start(json_path)
    from tandem.bench.batch.suite import FULL, QUICK, SUITE, run_batch

    finish(SUITE, machine, run_batch(QUICK if quick else FULL, report), json_path)


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
    machine = start(json_path)
    from tandem.bench import memory as suite

    cells = suite.chosen_cells(only)
    rows = suite.run_memory(cells, report, labels=labels, grouped=cgroup)
    finish(suite.SUITE, machine, rows, json_path)


def disk(
    json_path: JsonOption = None,
    directories: Annotated[
        list[Path] | None,
        typer.Option(
            "--dir",
            help="Folder on the disk to measure, by default this one; repeated: one on each disk, "
            "measured alone and all at once.",
            metavar="DIR",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: smaller model, fewer repeats.")
    ] = False,
) -> None:
    """Decode with weights on disk, beside its rate.

    On the host alone; of several disks, also from all at once, by copies and by stripes.
    """
    machine = start(json_path)
    from tandem.bench import disk as one_disk
    from tandem.bench import several_disks

    folders = several_disks.folders_of(directories or [Path()])
    first, *others = folders
    if others:
        several = several_disks.quick(folders) if quick else several_disks.full(folders)
        rows = several_disks.run_several_disks(several, report)
    else:
        one = one_disk.quick(first) if quick else one_disk.full(first)
        rows = one_disk.run_disk(one, report)
    finish(one_disk.SUITE, machine, rows, json_path)

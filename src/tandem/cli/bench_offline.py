"""`tandem bench offline`: batch jobs by plans, on emulated machines."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start

if TYPE_CHECKING:
    from tandem.bench.offline.cell import OfflineCell


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
    quick: Annotated[bool, typer.Option("--quick", help="Two cells of six.")] = False,
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
    machine = start(json_path)
    from tandem.bench.offline.rows import describe, rows_of
    from tandem.bench.offline.selection import check_policies, choose_cells
    from tandem.bench.offline.suite import SUITE, run_offline
    from tandem.bench.online.selection import truth_of

    check_policies(policy or ())
    cells = choose_cells(only, layers, truth_of(seed, plain=plain), quick=quick)
    if ablations:
        _ablate(policy or (), cells, machine, json_path)
        return
    outcomes = run_offline(policy or (), cells, report)
    rows = tuple(row for outcome in outcomes for row in rows_of(outcome))
    finish(SUITE, machine, rows, json_path)
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
    outcomes = run_ablations(cells, report)
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    finish(SUITE, machine, rows, json_path)
    for outcome in outcomes:
        print("\n".join(describe(outcome)))

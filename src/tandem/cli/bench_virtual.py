"""`tandem bench` of single things on emulated machines, in virtual time, and of planning."""

from dataclasses import replace
from typing import Annotated

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start


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
    machine = start(json_path)
    from tandem.bench import overlap as suite
    from tandem.cli.overlap_text import overlap_text

    bench = suite.OverlapBench(hardware, model, layers, context, device_rows, host_rows)
    if strategy:
        bench = replace(bench, strategies=tuple(dict.fromkeys(strategy)))
    outcomes = suite.run_overlap(bench, report)
    finish(suite.SUITE, machine, suite.rows_of(bench, outcomes), json_path)
    print("\n".join(overlap_text(outcomes)))


def placement(
    json_path: JsonOption = None,
    hardware: Annotated[
        str, typer.Option(help="Name or TOML file of the hardware to emulate.")
    ] = "a10g-scaled",
    model: Annotated[str, typer.Option(help="Name of a model's shape.")] = "llama-3.1-8b",
    layers: Annotated[int, typer.Option(help="Of the model's layers, how many.", min=2)] = 8,
) -> None:
    """One request whose weights do not fit.

    On an accelerator whose times are emulated.
    """
    machine = start(json_path)
    from tandem.bench.placement import SUITE, PlacementBench, run_placement
    from tandem.models.catalogue import plannable_spec

    bench = PlacementBench(plannable_spec(model), model, hardware, layers)
    finish(SUITE, machine, run_placement(bench, report), json_path)


def simulator(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds.")] = False,
) -> None:
    """Simulated steps per second of processor time.

    With and without runs of steps that are skipped, whose outcomes must be equal.
    """
    machine = start(json_path)
    from tandem.bench import simulator as suite

    bench = suite.QUICK if quick else suite.FULL
    finish(suite.SUITE, machine, suite.run_simulator(bench, report), json_path)


def plan(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="One question.")] = False,
) -> None:
    """Seconds that tandem plan takes, to the plan and to the end.

    Of nine questions, in processes of their own.
    """
    machine = start(json_path)
    from tandem.bench import plan_time as suite

    bench = suite.QUICK if quick else suite.FULL
    finish(suite.SUITE, machine, suite.run_plan_time(bench, report), json_path)


def preemption(json_path: JsonOption = None) -> None:
    """What becomes of preempted requests, way by way.

    In virtual time, on machines that need not be there.
    """
    machine = start(json_path)
    from tandem.bench import preemption as suite

    finish(suite.SUITE, machine, suite.run_preemption(suite.CASES, report), json_path)

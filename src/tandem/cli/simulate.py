"""`tandem simulate`: what requests would see, from the scheduler itself in virtual time."""

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.folded import print_folded
from tandem.cli.option_groups import grouped
from tandem.cli.planning import refuse_beside_trace, refuse_beside_workload, refuse_rate_of_one
from tandem.cli.planning_options import (
    GoalOptions,
    MachineOptions,
    MemoryOptions,
    ModelName,
    PolicyName,
    ServedOptions,
    StepOptions,
    TtftBound,
)
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """What is simulated: the planner's choice, under a restriction or not, or a plan of a file."""

    strategy: Annotated[
        str | None,
        typer.Option(
            help="As the engine's: auto, neo or apex choose each step, with the best plan's pools; "
            "of others, the best plan with it. The best of all plans, if none is named.",
            show_default=False,
        ),
    ] = None
    policy: PolicyName = "auto"
    plan: Annotated[
        Path | None,
        typer.Option(help="Serve by what `tandem plan --output` wrote.", metavar="FILE"),
    ] = None


@grouped
def simulate(
    context: typer.Context,
    *,
    model: ModelName,
    machine: MachineOptions,
    served: ServedOptions,
    choice: ChoiceOptions,
    goal: GoalOptions,
    ttft_bound: TtftBound = None,
    memory: MemoryOptions,
    steps: StepOptions,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a trace for Perfetto: a row per queue.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Serve requests in virtual time.

    On a machine that need not be there.
    """
    from tandem.cli.plan_hardware import asked_hardware
    from tandem.cli.simulate_runs import Asked, Runs
    from tandem.cli.simulate_sweep import HOST_CORES, read_sweep
    from tandem.cli.simulate_text import runs_json, runs_text
    from tandem.cli.usual_type import with_usual_type
    from tandem.simulator.timeline import Timeline

    if served.trace is not None:
        refuse_beside_trace(context, seeds=True)  # the scheduler's
    if served.workload is not None:
        refuse_beside_workload(context)
    refuse_rate_of_one(goal, _rate_flag(served))
    sweep = read_sweep(served.rate, served.rates, served.generate, served.host_cores)
    if sweep is not None and timeline is not None:
        raise ConfigError(f"--timeline shows one run; leave {sweep.flag} out", param="timeline")
    hardware = asked_hardware(machine)
    if choice.plan is None:  # whose types are its own
        memory, typed = with_usual_type(memory, model, hardware)
        hardware = hardware.saying(*typed)
    asked = Asked(model, goal, memory, steps, choice.strategy, choice.policy)
    if hardware.host_only:
        asked = asked.of_host_alone()
    if hardware.profile is not None and sweep is not None and sweep.flag == HOST_CORES:
        raise ConfigError(
            "--host-cores is of a described host: this machine was measured with the cores that it "
            "has; name one by --host, or leave --host-cores out",
            param="host_cores",
        )
    if choice.plan is not None:
        asked = asked.by_plan(context, choice.plan, hardware)
    runs = Runs(asked, hardware, served, ttft_bound)
    if sweep is not None:
        made = list(runs.each(sweep))
    elif timeline is None:
        made = [runs.one(None)]
    else:
        with closing(Timeline(timeline)) as spans:
            made = [runs.one(spans.add)]
    flag = None if sweep is None else sweep.flag
    if as_json:
        print(json.dumps(runs_json(model, flag, made, hardware.basis)))
    else:
        print_folded(runs_text(model, flag, made, hardware.basis))


def _rate_flag(served: ServedOptions) -> str | None:
    if served.rate is not None:
        return "--rate"
    return None if served.rates is None else "--rates"

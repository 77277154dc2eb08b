"""`tandem simulate`: what requests would see, from the scheduler itself in virtual time."""

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.option_groups import grouped
from tandem.cli.planning import refuse_beside_trace, refuse_beside_workload
from tandem.cli.planning_options import (
    AcceleratorName,
    BoundOptions,
    HostName,
    MemoryOptions,
    ModelName,
    ServedOptions,
    StepOptions,
)
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware


@grouped
def simulate(
    context: typer.Context,
    *,
    model: ModelName,
    accelerator: AcceleratorName = None,
    host: HostName = None,
    served: ServedOptions,
    strategy: Annotated[
        str, typer.Option(help="auto (the planner's best), or a strategy's best.")
    ] = "auto",
    bounds: BoundOptions,
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
    from tandem.cli.simulate_runs import Runs
    from tandem.cli.simulate_sweep import read_sweep
    from tandem.cli.simulate_text import runs_json, runs_text
    from tandem.simulator.timeline import Timeline

    if served.trace is not None:
        refuse_beside_trace(context, seeds=True)  # the scheduler's
    if served.workload is not None:
        refuse_beside_workload(context)
    sweep = read_sweep(served.rate, served.rates, served.generate, served.host_cores)
    if sweep is not None and timeline is not None:
        raise ConfigError(f"--timeline shows one run; leave {sweep.flag} out", param="timeline")
    runs = Runs(model, _described(accelerator, host), served, strategy, bounds, memory, steps)
    if sweep is not None:
        made = list(runs.each(sweep))
    elif timeline is None:
        made = [runs.one(None)]
    else:
        with closing(Timeline(timeline)) as spans:
            made = [runs.one(spans.add)]
    flag = None if sweep is None else sweep.flag
    if as_json:
        print(json.dumps(runs_json(model, flag, made)))
    else:
        print("\n".join(runs_text(model, flag, made)))


def _described(accelerator: str | None, host: str | None) -> "PlanHardware":
    from tandem.cli.plan_hardware import (
        MEASURED,
        NONE,
        keyword,
        no_accelerator,
        plan_hardware,
    )

    if accelerator is None:
        raise no_accelerator("")
    if keyword(accelerator) in (MEASURED, NONE) or (host and keyword(host) == MEASURED):
        raise ConfigError(
            "a simulation is of an accelerator and a host that are described; name both, not "
            f"'{MEASURED}' or '{NONE}'",
            param="accelerator",
        )
    return plan_hardware(accelerator, host, None)

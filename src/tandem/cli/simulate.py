"""`tandem simulate`: what requests would see, from the scheduler itself in virtual time."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.planning import (
    DRAWN,
    AcceleratorName,
    BlockSize,
    CpuMemory,
    DtypeName,
    GpuMemory,
    HostName,
    KVTypeName,
    MaxBatchedTokens,
    ModelName,
    PromptLengths,
    Rate,
    RequestTrace,
    Seed,
    read_question,
    read_workload,
    refuse_beside_trace,
)
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware
    from tandem.simulator.build import Planned
    from tandem.spec.workload import Workload

_REQUESTS = 200


def simulate(
    context: typer.Context,
    model: ModelName,
    accelerator: AcceleratorName,
    host: HostName = None,
    prompt: PromptLengths = "512",
    generate: Annotated[
        str, typer.Option(help="Output tokens, in the same forms; or 50,100,...: a run each.")
    ] = "128",
    requests: Annotated[
        int, typer.Option(help="Number of requests.", metavar="COUNT", min=1)
    ] = _REQUESTS,
    rate: Rate = None,
    rates: Annotated[
        str | None,
        typer.Option(help="Requests per second, 0.5,1,2: a run each.", metavar="LIST"),
    ] = None,
    host_cores: Annotated[
        str | None,
        typer.Option(help="Cores of the host, 4,8,16: a run each.", metavar="LIST"),
    ] = None,
    trace: RequestTrace = None,
    seed: Seed = 0,
    strategy: Annotated[
        str, typer.Option(help="auto (the planner's best), gpu-only, ride-along or rendezvous.")
    ] = "auto",
    gpu_memory: GpuMemory = "auto",
    cpu_memory: CpuMemory = "auto",
    dtype: DtypeName = "auto",
    kv_cache_dtype: KVTypeName = "auto",
    max_num_batched_tokens: MaxBatchedTokens = 2048,
    block_size: BlockSize = 64,
    timeline: Annotated[
        Path | None,
        typer.Option(help="Write a trace for Perfetto: a row per queue.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Serve requests in virtual time, on a machine that need not be there."""
    from tandem.cli.plan_hardware import MEASURED, NONE, plan_hardware
    from tandem.cli.simulate_sweep import HOST_CORES, RATES, hardware_with_cores, read_sweep
    from tandem.cli.simulate_text import Run, runs_json, runs_text
    from tandem.simulator.build import plan_for
    from tandem.simulator.simulate import simulate as run
    from tandem.simulator.timeline import Timeline

    def workload(rate: float | None, generate: str) -> "Workload":
        return read_workload(prompt, generate, requests, rate, trace, seed)

    def planned(hardware: "PlanHardware", workload: "Workload") -> "Planned":
        question = read_question(
            model, hardware, workload, dtype, kv_cache_dtype, gpu_memory, cpu_memory,
            "throughput", None, max_num_batched_tokens, block_size,
        )  # fmt: skip
        return plan_for(question, strategy)

    if trace is not None:  # the seed is the scheduler's too
        refuse_beside_trace(context, tuple(name for name in DRAWN if name != "seed"))
    sweep = read_sweep(rate, rates, generate, host_cores, trace)
    if sweep is not None and timeline is not None:
        raise ConfigError(f"--timeline shows one run; leave {sweep.flag} out", param="timeline")
    if MEASURED in (accelerator, host) or accelerator == NONE:
        raise ConfigError(
            "a simulation is of an accelerator and a host that are described; name both, not "
            f"'{MEASURED}' or '{NONE}'",
            param="accelerator",
        )
    hardware = plan_hardware(accelerator, host, None)
    spans = Timeline()
    runs: list[Run] = []
    if sweep is None:
        requested = workload(rate, generate)
        plan = planned(hardware, requested)
        outcome = run(plan, requested, seed, on_span=None if timeline is None else spans.add)
        runs.append(Run(None, plan, requested, outcome))
    elif sweep.flag == RATES:
        plan = planned(hardware, workload(None, generate))  # the same engine at any rate
        for value in sweep.values:
            requested = workload(value, generate)
            runs.append(Run(value, plan, requested, run(plan, requested, seed)))
    else:
        for value in sweep.values:
            cores = sweep.flag == HOST_CORES
            requested = workload(rate, generate if cores else str(value))
            machine = hardware
            if cores:
                machine = replace(hardware, spec=hardware_with_cores(hardware.spec, int(value)))
            plan = planned(machine, requested)
            runs.append(Run(value, plan, requested, run(plan, requested, seed)))
    if timeline is not None:
        spans.write(timeline)
    flag = None if sweep is None else sweep.flag
    if as_json:
        print(json.dumps(runs_json(model, flag, runs)))
    else:
        print("\n".join(runs_text(model, flag, runs)))

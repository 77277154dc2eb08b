"""`tandem plan`: what a machine will do with a model, before anything is downloaded or loaded."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.planning import (
    DRAWN,
    BlockSize,
    CpuMemory,
    DiskRate,
    DtypeName,
    GpuMemory,
    KVTypeName,
    MaxBatchedTokens,
    ModelName,
    PromptLengths,
    Quantization,
    Rate,
    RequestTrace,
    Seed,
    read_question,
    read_workload,
    refuse_beside_trace,
)
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.plan.plan_file import PlanFile

_REQUESTS = 1000


def plan(
    context: typer.Context,
    model: ModelName,
    accelerator: Annotated[
        str,
        typer.Option(
            help="Accelerator: a10g, rtx4090, ..., a TOML file, measured, or none.", metavar="NAME"
        ),
    ],
    host: Annotated[
        str | None,
        typer.Option(
            help="Host: g5.4xlarge, desktop-ddr5, ..., a TOML file, or measured.", metavar="NAME"
        ),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="What `tandem profile --output` wrote.", metavar="FILE"),
    ] = None,
    prompt: PromptLengths = "512",
    generate: Annotated[str, typer.Option(help="Output tokens, in the same forms.")] = "128",
    requests: Annotated[
        int, typer.Option(help="Number of requests.", metavar="COUNT", min=1)
    ] = _REQUESTS,
    rate: Rate = None,
    trace: RequestTrace = None,
    seed: Seed = 0,
    objective: Annotated[str, typer.Option(help="throughput or latency (one request).")] = (
        "throughput"
    ),
    tpot_bound: Annotated[
        str | None,
        typer.Option(help="Most time per output token of any request, e.g. 100ms.", metavar="TIME"),
    ] = None,
    gpu_memory: GpuMemory = "auto",
    cpu_memory: CpuMemory = "auto",
    disk: DiskRate = None,
    dtype: DtypeName = "auto",
    kv_cache_dtype: KVTypeName = "auto",
    quantization: Quantization = "auto",
    max_num_batched_tokens: MaxBatchedTokens = 2048,
    block_size: BlockSize = 64,
    policy: Annotated[str, typer.Option(help="Plan under this policy only.")] = "auto",
    compare_policies: Annotated[
        bool, typer.Option("--compare-policies", help="Also what each policy would do.")
    ] = False,
    robust: Annotated[
        bool, typer.Option("--robustness", help="Also the plan if a number is off by a fifth.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Write the plan, for an engine's --plan.", metavar="FILE"),
    ] = None,
    gantt: Annotated[
        bool, typer.Option("--gantt", help="Also one decode cycle, queue by queue.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw memory and one decode cycle into a PNG.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Predict placement, speed and limits of a model on a machine that need not be there."""
    from tandem.cli.plan_gantt import cycle_json, gantt_text
    from tandem.cli.plan_hardware import plan_hardware, with_disk
    from tandem.cli.plan_json import answer_json
    from tandem.cli.plan_plot import check_plot, plot_plan
    from tandem.cli.plan_text import answer_text
    from tandem.planner.answer import answer
    from tandem.planner.cycle import decode_cycle
    from tandem.planner.plan_file import plan_file

    if plot is not None:
        check_plot(plot)
    if trace is not None:
        refuse_beside_trace(context, DRAWN)
    workload = read_workload(prompt, generate, requests, rate, trace, seed)
    hardware = with_disk(plan_hardware(accelerator, host, profile), disk)
    if hardware.host_only and (gantt or plot is not None):
        raise ConfigError(
            "--gantt and --plot show how an accelerator and its host work side by side; on the "
            "host alone everything runs in one queue: leave them out",
            param="gantt",
        )
    question = read_question(
        model, hardware, workload, dtype, kv_cache_dtype,
        gpu_memory, cpu_memory, objective, tpot_bound, max_num_batched_tokens, block_size,
        quantization,
    )  # fmt: skip
    found = answer(question, policy, compare_policies, robust)
    if output is not None:
        _write(output, plan_file(model, found, quantization))
    cycle = decode_cycle(question, found.chosen.candidate) if gantt or plot else None
    if cycle is not None and plot is not None:
        plot_plan(model, found, cycle, plot)
    if as_json:
        drawn = {"decode_cycle": cycle_json(cycle)} if cycle is not None and gantt else {}
        print(json.dumps({**answer_json(model, workload, found, hardware.basis), **drawn}))
        return
    flags = _flags(
        dtype=dtype, kv_cache_dtype=kv_cache_dtype, quantization=quantization,
        block_size=block_size,
        gpu_memory=gpu_memory, cpu_memory=cpu_memory,
    )  # fmt: skip
    print("\n".join(answer_text(model, workload, found, hardware.basis, flags, output)))
    if cycle is not None and gantt:
        print("\n".join(["", *gantt_text(cycle)]))


def _flags(**given: object) -> tuple[str, ...]:
    """An engine's flags for what was given and is not its default."""
    from tandem.spec.config import EngineConfig

    defaults = {field.name: field.default for field in fields(EngineConfig)}
    words: list[str] = []
    for name, value in given.items():
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


def _write(path: Path, planned: "PlanFile") -> None:
    try:
        path.write_text(planned.to_json() + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; name another file",
            param="output",
        ) from None

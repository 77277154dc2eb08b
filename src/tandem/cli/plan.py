"""`tandem plan`: what a machine will do with a model, before anything is downloaded or loaded."""

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware
    from tandem.planner.question import Question
    from tandem.spec.dtype import DType
    from tandem.spec.precision import Precision
    from tandem.spec.workload import Workload

_HOST_SHARE = 0.5  # of the host's memory, as an engine beside an accelerator takes under auto
_ALONE_SHARE = 0.75  # likewise, of an engine without one
_REQUESTS = 1000
_DRAWN = ("prompt", "generate", "requests", "rate", "seed")


def plan(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Argument(help="Model by name (llama-3.1-8b), hub id or directory.", metavar="MODEL"),
    ],
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
    prompt: Annotated[
        str, typer.Option(help="Prompt tokens: 512, 400-600, exp:300, lognormal:300,200.")
    ] = "512",
    generate: Annotated[str, typer.Option(help="Output tokens, in the same forms.")] = "128",
    requests: Annotated[
        int, typer.Option(help="Number of requests.", metavar="COUNT", min=1)
    ] = _REQUESTS,
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second, a Poisson process; else all come at once."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Requests of an Azure LLM trace (CSV) or ShareGPT-like JSON.", metavar="FILE"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of drawn lengths and arrivals.")] = 0,
    objective: Annotated[str, typer.Option(help="throughput or latency (one request).")] = (
        "throughput"
    ),
    tpot_bound: Annotated[
        str | None,
        typer.Option(help="Most time per output token of any request, e.g. 100ms.", metavar="TIME"),
    ] = None,
    gpu_memory: Annotated[
        str, typer.Option(help="Accelerator memory to use; auto: all but 256 MiB.", metavar="SIZE")
    ] = "auto",
    cpu_memory: Annotated[
        str, typer.Option(help="Host memory to use; auto: half of it.", metavar="SIZE")
    ] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, float32, bfloat16, float16, int8 or int4.")
    ] = "auto",
    max_num_batched_tokens: Annotated[
        int, typer.Option(help="Most tokens computed in one step.", min=1)
    ] = 2048,
    block_size: Annotated[int, typer.Option(help="Tokens per KV block.", min=16, max=256)] = 64,
    policy: Annotated[str, typer.Option(help="Plan under this policy only.")] = "auto",
    compare_policies: Annotated[
        bool, typer.Option("--compare-policies", help="Also what each policy would do.")
    ] = False,
    robust: Annotated[
        bool, typer.Option("--robustness", help="Also the plan if a number is off by a fifth.")
    ] = False,
    placement_file: Annotated[
        Path | None,
        typer.Option(help="Write the weights' placement for --placement.", metavar="FILE"),
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
    from tandem.cli.plan_hardware import plan_hardware
    from tandem.cli.plan_json import answer_json, placement_json
    from tandem.cli.plan_plot import check_plot, plot_plan
    from tandem.cli.plan_text import answer_text
    from tandem.planner.answer import answer
    from tandem.planner.cycle import decode_cycle

    if plot is not None:
        check_plot(plot)
    if trace is not None:
        _refuse_beside_trace(context)
    workload = _workload(prompt, generate, requests, rate, trace, seed)
    hardware = plan_hardware(accelerator, host, profile)
    if hardware.host_only and (gantt or plot is not None):
        raise ConfigError(
            "--gantt and --plot show how an accelerator and its host work side by side; on the "
            "host alone everything runs in one queue: leave them out",
            param="gantt",
        )
    question = _question(
        model, hardware, workload, dtype, kv_cache_dtype,
        gpu_memory, cpu_memory, objective, tpot_bound, max_num_batched_tokens, block_size,
    )  # fmt: skip
    found = answer(question, policy, compare_policies, robust)
    if placement_file is not None:
        _write(placement_file, placement_json(found.plan))
    cycle = decode_cycle(question, found.chosen.candidate) if gantt or plot else None
    if cycle is not None and plot is not None:
        plot_plan(model, found, cycle, plot)
    if as_json:
        drawn = {"decode_cycle": cycle_json(cycle)} if cycle is not None and gantt else {}
        print(json.dumps({**answer_json(model, workload, found, hardware.basis), **drawn}))
        return
    flags = _flags(
        dtype=dtype, kv_cache_dtype=kv_cache_dtype, block_size=block_size,
        gpu_memory=gpu_memory, cpu_memory=cpu_memory, placement=placement_file,
    )  # fmt: skip
    print("\n".join(answer_text(model, workload, found, hardware.basis, flags)))
    if cycle is not None and gantt:
        print("\n".join(["", *gantt_text(cycle)]))


def _refuse_beside_trace(context: typer.Context) -> None:
    """A trace says how long requests are, how many, and when they come."""
    void = [name for name in _DRAWN if _was_given(context, name)]
    if void:
        flags = " and ".join(f"--{name}" for name in void)
        raise ConfigError(
            f"{flags} would mean nothing beside --trace, which has all requests; leave out one or "
            "the other",
            param="trace",
        )


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _flags(**given: object) -> tuple[str, ...]:
    """An engine's flags for what was given and is not its default."""
    from tandem.spec.config import EngineConfig

    defaults = {field.name: field.default for field in fields(EngineConfig)}
    words: list[str] = []
    for name, value in given.items():
        if value != defaults[name]:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(words)


def _workload(
    prompt: str,
    generate: str,
    requests: int,
    rate: float | None,
    trace: Path | None,
    seed: int,
) -> "Workload":
    from tandem.spec.trace_file import read_trace
    from tandem.spec.workload import drawn_workload, parse_lengths

    if trace is not None:
        return read_trace(trace)
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigError(f"--rate must be above 0 requests per second, not {rate}", param="rate")
    lengths = parse_lengths(prompt, "prompt"), parse_lengths(generate, "generate")
    return drawn_workload(*lengths, requests, rate, seed)


def _question(
    model: str,
    hardware: "PlanHardware",
    workload: "Workload",
    dtype: str,
    kv_cache_dtype: str,
    gpu_memory: str,
    cpu_memory: str,
    objective: str,
    tpot_bound: str | None,
    max_num_batched_tokens: int,
    block_size: int,
) -> "Question":
    from tandem.models.catalogue import plannable_spec
    from tandem.planner.question import Lengths, Question, parse_objective
    from tandem.spec.dtype import parse_dtype
    from tandem.spec.units import MIB, parse_duration_s

    spec = plannable_spec(model)
    if len(spec.distinct_layers) > 1:
        raise ConfigError(
            "models with experts in some layers only are not planned yet; choose one with experts "
            "in all layers or in none",
            param="model",
        )
    weights = spec.dtype if dtype == "auto" else parse_dtype(dtype)
    precision = _precision(weights, dtype, kv_cache_dtype, host_only=hardware.host_only)
    lengths = Lengths.of(workload)
    if lengths.longest_tokens > spec.max_positions:
        raise ConfigError(
            f"the longest request has {lengths.longest_tokens} tokens, but the model takes "
            f"{spec.max_positions}; shorten --prompt or --generate, or choose another model",
            param="prompt",
        )
    card = hardware.spec.accelerator.memory_bytes
    there = hardware.spec.host.memory_bytes
    device_bytes = _memory(gpu_memory, card - 256 * MIB, card, "gpu_memory")
    host_bytes = _memory(cpu_memory, int(there * _HOST_SHARE), there, "cpu_memory")
    if hardware.host_only:
        if gpu_memory != "auto":
            raise ConfigError(
                "--gpu-memory has no meaning without an accelerator; use --cpu-memory",
                param="gpu_memory",
            )
        device_bytes = _memory(cpu_memory, int(there * _ALONE_SHARE), there, "cpu_memory")
        host_bytes = 0
    return Question(
        model=spec,
        hardware=hardware.spec,
        precision=precision,
        lengths=lengths,
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        objective=parse_objective(objective),
        tpot_bound_s=None
        if tpot_bound is None
        else parse_duration_s(tpot_bound, param="tpot_bound"),
        max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size,
        host_only=hardware.host_only,
        measured=None if hardware.profile is None else hardware.profile.host,
    )


def _precision(
    weights: "DType", dtype: str, kv_cache_dtype: str, *, host_only: bool
) -> "Precision":
    """As an engine chooses: on the host alone activations are in float32, and KV unless asked."""
    from tandem.spec.dtype import DType
    from tandem.spec.kv_type import parse_kv_type
    from tandem.spec.precision import Precision

    activations = DType.FLOAT32 if host_only else weights
    kv = DType.FLOAT32 if host_only and dtype == "auto" else weights
    if kv_cache_dtype != "auto":
        return Precision(weights, activations, parse_kv_type(kv_cache_dtype))
    return Precision(weights, activations, kv)


def _memory(text: str, default: int, there: int, param: str) -> int:
    from tandem.spec.units import format_size, parse_size_with_unit

    if text == "auto":
        return default
    size = parse_size_with_unit(text, param=param)
    if size > there:
        flag = param.replace("_", "-")
        raise ConfigError(
            f"--{flag} {format_size(size)} is more than the {format_size(there)} that the machine "
            "has; lower it",
            param=param,
        )
    return size


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text + "\n", "utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror or error}; name another file",
            param="placement_file",
        ) from None

"""What the options of commands that plan mean."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tandem.cli.flags import was_given
from tandem.cli.planning_options import GoalOptions, MemoryOptions, RequestOptions, StepOptions
from tandem.spec.errors import ConfigError, shown

if TYPE_CHECKING:
    from tandem.cli.plan_hardware import PlanHardware
    from tandem.planner.question import Lengths, Question
    from tandem.spec.dtype import DType
    from tandem.spec.model import ModelSpec
    from tandem.spec.precision import Precision
    from tandem.spec.weight_format import WeightFormat
    from tandem.spec.workload import Workload

_BITS = {"int8": 8, "int4": 4}
_MIN_RATE = 1e-6  # requests per second, one in 12 days; times between far rarer ones overflow
LENGTHS = ("prompt", "generate")
"""Options that say how long requests are."""
_DRAWN = ("workload", *LENGTHS, "requests")


def refuse_beside_trace(context: typer.Context, *, seeds: bool) -> None:
    """A trace says how long requests are and how many.

    Args:
        seeds: something is drawn nevertheless, so that --seed has a meaning.

    Raises:
        ConfigError: an option that says it where there is no trace was given.
    """
    drawn = _DRAWN if seeds else (*_DRAWN, "seed")
    void = [name for name in drawn if was_given(context, name)]
    if void:
        flags = " and ".join(f"--{name}" for name in void)
        raise ConfigError(
            f"{flags} would mean nothing beside --trace, which has all requests; leave out one or "
            "the other",
            param="trace",
        )


def refuse_beside_workload(context: typer.Context) -> None:
    """A named workload says how long requests are.

    Raises:
        ConfigError: a length was given as well.
    """
    for name in LENGTHS:
        if was_given(context, name):
            raise ConfigError(
                f"--{name} and --workload both say how long requests are; leave out one of them",
                param="workload",
            )


def refuse_rate_of_one(goal: GoalOptions, flag: str | None) -> None:
    """One request at a time comes at no rate.

    Args:
        flag: that says how often requests come, if one was given.

    Raises:
        ConfigError: both.
    """
    if goal.objective == "latency" and flag is not None:
        raise ConfigError(
            "--objective latency plans for one request at a time, however often they come: leave "
            f"{flag} out, or plan with --objective throughput",
            param=flag.strip("-"),
        )


def read_workload(options: RequestOptions, model: str) -> "Workload":
    """Requests from a trace, or drawn.

    Args:
        model: whose tokens prompts are, where a trace has them as text to be answered.

    Raises:
        ConfigError: says what is wrong with which option.
    """
    from tandem.spec.workload import drawn_workload, parse_lengths

    rate = options.rate
    if rate is not None:
        _check_rate(rate)
    if options.trace is not None:
        traced = _read_trace(options.trace, model)
        return traced if rate is None else at_rate(traced, rate, options.seed)
    if options.workload is not None:
        from tandem.spec.workload_file import load_lengths

        named = load_lengths(options.workload)
        notes = tuple(f"assumed of {options.workload}: {line}" for line in named.assumed)
        return drawn_workload(
            named.prompt, named.generate, options.requests, rate, options.seed, named.name, notes
        )
    prompt = parse_lengths(options.prompt, "prompt")
    generate = parse_lengths(options.generate, "generate")
    return drawn_workload(prompt, generate, options.requests, rate, options.seed)


def _read_trace(path: Path, model: str) -> "Workload":
    from tandem.spec.trace_file import is_batch_file, read_trace

    if not is_batch_file(path):
        return read_trace(path)
    from tandem.jobs.batch_trace import read_batch_trace

    return read_batch_trace(path, model)


def at_rate(traced: "Workload", rate: float, seed: int) -> "Workload":
    """A trace's requests, coming at a rate.

    Raises:
        ConfigError: they have times of their own, or the rate is none.
    """
    from tandem.spec.workload import arriving

    _check_rate(rate)
    return arriving(traced, rate, seed)


def _check_rate(rate: float) -> None:
    if not _MIN_RATE <= rate < float("inf"):
        raise ConfigError(
            f"--rate must be above 0 requests per second, at least {_MIN_RATE}, not {rate}",
            param="rate",
        )


def read_question(
    model: str,
    hardware: "PlanHardware",
    workload: "Workload",
    memory: MemoryOptions,
    steps: StepOptions,
    goal: GoalOptions,
    *,
    in_blocks: bool = False,
    pinned_memory: str | None = None,
) -> "Question":
    """What the planner is asked.

    Args:
        in_blocks: of a batch job in blocks, whose engine holds no weights in 8-bit floating point.
        pinned_memory: of the host's, what such a job may pin at most; None: any of it.

    Raises:
        ConfigError: says what is wrong with which option.
    """
    from tandem.models.catalogue import plannable_spec
    from tandem.planner.question import USUAL_STEP_TOKENS, Lengths, Question, parse_objective
    from tandem.planner.search.step_sizes import STEP_SIZES
    from tandem.spec.dtype import parse_dtype

    spec = plannable_spec(model)
    dtype = memory.dtype
    weights = spec.dtype if dtype == "auto" else parse_dtype(dtype)
    precision = _precision(weights, dtype, memory.kv_cache_dtype, host_only=hardware.host_only)
    # as `engine.sizing.fp8_choice`: what the CPU computes by is wider
    floats = not (hardware.host_only or in_blocks)
    folder = Path(model).expanduser()
    precision = _quantized(precision, spec, memory.quantization, folder, floats=floats)
    lengths = Lengths.of(workload)
    if lengths.longest_tokens > spec.max_positions:
        raise ConfigError(
            f"the longest request has {lengths.longest_tokens} tokens, but the model takes "
            f"{spec.max_positions}; shorten --prompt or --generate, or choose another model",
            param="prompt",
        )
    device_bytes, host_bytes = _memories(hardware, memory)
    tokens = steps.max_num_batched_tokens
    return Question(
        model=spec,
        hardware=hardware.spec,
        precision=precision,
        lengths=lengths,
        device_bytes=device_bytes,
        host_bytes=host_bytes,
        objective=parse_objective(goal.objective),
        tpot_bound_s=_tpot_bound_s(goal, lengths),
        max_num_batched_tokens=tokens or USUAL_STEP_TOKENS,
        step_sizes=() if tokens else STEP_SIZES,
        block_size=steps.block_size,
        host_only=hardware.host_only,
        measured=None if hardware.profile is None else hardware.profile.host,
        measured_card=hardware.card,
        pinned_bytes=pinned_bytes(pinned_memory),
    )


def _tpot_bound_s(goal: GoalOptions, lengths: "Lengths") -> float | None:
    """Most time per output token; None: any, as where no request has a token after its first."""
    from tandem.spec.units import parse_duration_s

    if goal.tpot_bound is None:
        return None
    bound_s = parse_duration_s(goal.tpot_bound, param="tpot_bound")
    return bound_s if lengths.later_tokens else None


def pinned_bytes(text: str | None) -> int | None:
    """Of host memory, what may be pinned at most; None: any of it."""
    from tandem.spec.units import parse_size_with_unit

    if text is None:
        return None
    return parse_size_with_unit(text, param="pinned_memory", allows_nothing=True)


def _memories(hardware: "PlanHardware", memory: MemoryOptions) -> tuple[int, int]:
    """Bytes to use on the accelerator and on the host; alone, the host stands for the former."""
    from tandem.memory.host_default import fillable_host_bytes
    from tandem.memory.margin import margin_bytes

    card = hardware.spec.accelerator.memory_bytes
    there = hardware.spec.host.memory_bytes
    device_bytes = _memory(memory.gpu_memory, card - margin_bytes(card), card, "gpu_memory")
    host_bytes = _memory(memory.cpu_memory, fillable_host_bytes(there), there, "cpu_memory")
    if not hardware.host_only:
        return device_bytes, host_bytes
    if memory.gpu_memory != "auto":
        raise ConfigError(
            "--gpu-memory has no meaning without an accelerator; use --cpu-memory",
            param="gpu_memory",
        )
    return host_bytes, 0


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


def _quantized(
    precision: "Precision", spec: "ModelSpec", wanted: str, folder: Path, *, floats: bool
) -> "Precision":
    """The layers' linear maps in few bits, if that is asked for, or if the checkpoint in `folder`
    has them so and nothing else is asked for.

    Args:
        floats: in 8-bit floating point, too.
    """
    from dataclasses import replace

    from tandem.spec.quantized_maps import uniform_formats
    from tandem.spec.units import is_count

    kind, _, group = wanted.partition(":")
    if wanted == "none":
        return precision
    stored = _stored_formats(folder, spec, floats=floats and wanted == "auto")
    if wanted == "auto":
        return replace(precision, quantized=stored)
    if kind not in _BITS or (":" in wanted and not is_count(group)):
        raise ConfigError(
            f"cannot plan for quantization {shown(wanted)}; use none, int8 or int4, the latter two "
            "with a group's size or without, such as int4:64",
            param="quantization",
        )
    if stored:
        raise ConfigError(
            "the checkpoint is quantized already; leave --quantization out to plan for it as it "
            "is, or use none to plan for it dequantized",
            param="quantization",
        )
    formats = uniform_formats(spec, _BITS[kind], int(group) if group else None)
    return replace(precision, quantized=formats)


def _stored_formats(folder: Path, spec: "ModelSpec", *, floats: bool) -> dict[str, "WeightFormat"]:
    """Of a checkpoint's folder. Formats are read by code that needs torch, so only if need be."""
    from tandem.models.config import read_config

    if not folder.is_dir():
        return {}
    config = read_config(folder)
    keys = ("quantization_config", "compression_config")
    places = (config, config.section("text_config"))
    if not any(place.section(key).values for place in places for key in keys):
        return {}
    from tandem.models.stored_formats import folder_formats

    return folder_formats(folder, spec, floats=floats)


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

"""Flags that every command with an engine has; their names are `EngineConfig`'s."""

import functools
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import Any, Protocol

from tandem.cli.flags import Flag, fill
from tandem.spec.config import EngineConfig

_DEFAULTS = {field.name: field.default for field in fields(EngineConfig)}

_NO_DEFAULTS: Mapping[str, Any] = MappingProxyType({})


class EngineOptions(Protocol):
    """Builds the configuration once the model is known."""

    def __call__(self, model: str, defaults: Mapping[str, Any] = _NO_DEFAULTS) -> EngineConfig:
        """`defaults` stand for options that the user has not given."""
        ...


def _flag(
    name: str, kind: object, help: str, metavar: str | None = None, synonym: str | None = None
) -> Flag:
    return Flag(name, kind, _DEFAULTS[name], help, metavar, synonym=synonym)


ENGINE_FLAGS = (
    _flag("accelerator", str, "auto, cuda[:N], emulated[:SPEC] or none.", "NAME"),
    _flag(
        "gpu_memory",
        str,
        "Memory to use on the accelerator, e.g. 12GiB; auto: what is free.",
        "SIZE",
    ),
    _flag(
        "gpu_margin",
        str,
        "Accelerator memory to leave free under auto; auto: 5%, at most 1 GiB.",
        "SIZE",
    ),
    _flag(
        "cpu_memory",
        str,
        "DRAM to use, e.g. 64GiB; auto: what is free less a margin, KV about 8 GiB.",
        "SIZE",
        synonym="--host-memory",
    ),
    _flag(
        "pinned_memory",
        str | None,
        "Of a batch job's --plan: host memory that may be pinned for copies at most.",
        "SIZE",
    ),
    _flag(
        "plan",
        str | None,
        "JSON file of `tandem plan --output`: homes, KV pools, bounds and types are as planned.",
        "FILE",
    ),
    _flag(
        "placement",
        str | None,
        "JSON file: where layers are; else as many are resident as fit.",
        "FILE",
    ),
    _flag(
        "host_layers",
        str,
        "Layers that do not fit: auto (by predicted time), stream, cpu, or mlp (only that on it).",
        "NAME",
    ),
    _flag(
        "expert_hits",
        str | None,
        "JSON file: how often tokens went to each expert; the hottest stay on the accelerator.",
        "FILE",
    ),
    _flag("save_expert_hits", str | None, "Write such a file when the engine ends.", "FILE"),
    _flag(
        "disk_io",
        str,
        "How layers on disk are read: direct, cached by the system, or gpudirect into a GPU.",
        "NAME",
    ),
    _flag(
        "spool_dir", str | None, "Folders for layers converted to be read from disk.", "DIR[:DIR]"
    ),
    _flag(
        "disk_copies",
        str | None,
        "Folders with copies of the checkpoint on other disks, read at the same time.",
        "DIR[:DIR]",
    ),
    _flag("dtype", str, "auto, float32, bfloat16 or float16.", "TYPE"),
    _flag(
        "quantization",
        str,
        "Of layers' weights: auto, none, or approximate: int8, int4, w8a8, with [:GROUP].",
        "KIND",
    ),
    _flag(
        "kv_cache_dtype",
        str,
        "auto, float32, bfloat16, float16, or approximate: fp8, int8, int4.",
        "TYPE",
    ),
    _flag("cpu_kv_dtype", str, "The same of KV in host memory; auto: as on the GPU.", "TYPE"),
    _flag("max_model_len", int | None, "Most tokens of prompt and output together.", "TOKENS"),
    _flag("seed", int, "From which requests without a seed derive theirs, and dummy weights."),
    _flag("load_format", str, "auto, safetensors, or dummy for random weights.", "NAME"),
    _flag("max_num_seqs", int, "Most sequences that run at once."),
    _flag("max_num_batched_tokens", int, "Most tokens computed in one step.", "TOKENS"),
    _flag("block_size", int, "Tokens per KV block: 16, 32, 64, 128 or 256.", "TOKENS"),
    _flag("strategy", str, "Scheduling strategy, or auto.", "NAME"),
    _flag("kv_placement", str, "Where KV lies: auto, device, host or split.", "NAME"),
    _flag("max_host_seqs", int, "Under auto: requests that may lie on the host for want of room."),
    _flag(
        "interposition_budget",
        int | None,
        "Most passes of a cohort's own in a step, as under asymmetric; one beside every layer.",
        "PASSES",
    ),
    _flag(
        "tpot_bound",
        str | None,
        "Under auto: how long steps may be for requests on the host, as 100ms.",
        "TIME",
    ),
    _flag(
        "ttft_bound",
        str | None,
        "From arrival to a first token, as 2s: prompts that can be in time are read first.",
        "TIME",
    ),
    _flag(
        "preemption_mode",
        str | None,
        "What becomes of preempted KV: auto, mix, recompute or swap; if not given, swap beside "
        "some plans, else recompute.",
        "NAME",
    ),
    _flag("enable_prefix_caching", bool, "Reuse the KV of equal beginnings of prompts."),
    _flag(
        "host_prefix_share",
        float | None,
        "Most of the host's KV memory for such KV that the GPU had to make room for; 0: none.",
        "SHARE",
    ),
    _flag(
        "kv_disk",
        str | None,
        "Folder for such KV that memory has no room for; kept when the engine ends.",
        "DIR",
    ),
    _flag("kv_disk_size", str | None, "Most that it takes there; 16GiB if not given.", "SIZE"),
    _flag(
        "max_num_queued_reqs",
        int | None,
        "Most requests that wait; others are refused. No bound if not given.",
    ),
    _flag("calibrate", bool, "Correct predicted times of steps by measured ones."),
    _flag("overlap", bool, "Prepare steps while others run; without, one after the other."),
    _flag(
        "cuda_graphs",
        str,
        "Launch decoding steps as one, of others GPU layers as one each: auto, on, or off.",
        "NAME",
    ),
    _flag(
        "link_copies",
        str,
        "How KV blocks cross the link: auto, or batched: by one call of the driver.",
        "NAME",
    ),
    _flag(
        "link_waits",
        str,
        "What waits for the CPU's attention: host, a thread, or stream, the GPU itself.",
        "NAME",
    ),
    _flag(
        "attention_backend",
        str,
        "What attends on the GPU to prompts, and decodes: auto, triton, flashinfer, or torch.",
        "NAME",
    ),
    _flag("tensor_parallel_size", int, "Ranks that share each layer; only 1 so far."),
    _flag("trace", str | None, "Write what the engine does, for ui.perfetto.dev.", "FILE"),
    _flag("trace_limit", str, "Size at which that file ends.", "SIZE"),
)


def _read_engine(
    model: str, defaults: Mapping[str, Any] = _NO_DEFAULTS, **given: Any
) -> EngineConfig:
    """The configuration, with what a plan decides."""
    from tandem.engine.sizing.plan_options import engine_config

    return engine_config({"model": model, **given}, defaults)


def _read_job(model: str, defaults: Mapping[str, Any] = _NO_DEFAULTS, **given: Any) -> EngineConfig:
    """Likewise; a plan may have yet to be made."""
    from tandem.engine.sizing.plan_options import job_config

    return job_config({"model": model, **given}, defaults)


fill_engine = fill("engine", _read_engine, ENGINE_FLAGS, given_only=True)
"""A decorator: the command's argument `engine` takes the model and gives the configuration."""


def fill_engine_for_job() -> Any:
    """As `fill_engine`, for a command that knows all of its requests: it may plan for them."""
    help = "JSON file of `tandem plan --output`; auto: plan for this job, where all may wait."
    flags = [
        replace(f, help=help, metavar="FILE|auto") if f.name == "plan" else f for f in ENGINE_FLAGS
    ]
    return fill("engine", _read_job, flags, given_only=True)


def fill_engine_for_one() -> Any:
    """As `fill_engine`, for a command that runs one sequence at a time."""
    defaults = {"max_num_seqs": 1}
    build = functools.partial(_read_engine, defaults=defaults)
    flags = [replace(f, default=defaults.get(f.name, f.default)) for f in ENGINE_FLAGS]
    return fill("engine", build, flags, given_only=True)


def fill_engine_for_known() -> Any:
    """As `fill_engine`, for a command that knows how many sequences there will be, which it says in
    the defaults.
    """
    help = "Most sequences that run at once; default: all, but at most 64."
    flags = [
        replace(f, kind=int | None, default=None, help=help) if f.name == "max_num_seqs" else f
        for f in ENGINE_FLAGS
    ]
    return fill("engine", _read_engine, flags, given_only=True)

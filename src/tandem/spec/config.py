"""Everything a user can choose about an engine, frozen and resolved once."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from tandem.spec import forms
from tandem.spec.block_size import DEFAULT_BLOCK_SIZE, require_block_size
from tandem.spec.errors import ConfigError
from tandem.spec.units import parse_duration_s, parse_size

KVPlacement = Literal["auto", "device", "host", "split"]
PreemptionMode = Literal["auto", "recompute", "swap", "mix"]
HostLayers = Literal["auto", "stream", "cpu", "mlp"]
DiskIO = Literal["direct", "cached", "gpudirect"]
HostIO = Literal["direct", "cached"]
CudaGraphs = Literal["auto", "on", "off"]
LinkCopies = Literal["auto", "batched"]
LinkWaits = Literal["host", "stream"]
AttentionBackend = Literal["auto", "triton", "flashinfer", "torch"]

AUTO_PLAN = "auto"
"""In place of a plan's file: plan for the requests of this job, which is known whole."""

_SIZES = ("gpu_memory", "cpu_memory", "gpu_margin")
_LOAD_FORMATS = ("auto", "safetensors", "dummy")

_FORMS: dict[str, forms.Form] = {
    "model": forms.path_text,
    "accelerator": forms.text,
    "gpu_memory": forms.size_text,
    "cpu_memory": forms.size_text,
    "gpu_margin": forms.size_text,
    "pinned_memory": forms.optional(forms.size_text),
    "plan": forms.optional(forms.path_text),
    "placement": forms.optional(forms.path_text),
    "host_layers": forms.text,
    "expert_hits": forms.optional(forms.path_text),
    "save_expert_hits": forms.optional(forms.path_text),
    "disk_io": forms.text,
    "spool_dir": forms.optional(forms.path_text),
    "disk_copies": forms.optional(forms.path_text),
    "dtype": forms.text,
    "quantization": forms.text,
    "kv_cache_dtype": forms.text,
    "cpu_kv_dtype": forms.text,
    "max_model_len": forms.optional(forms.whole_number),
    "seed": forms.whole_number,
    "load_format": forms.text,
    "max_num_seqs": forms.whole_number,
    "max_num_batched_tokens": forms.whole_number,
    "block_size": forms.whole_number,
    "strategy": forms.text,
    "kv_placement": forms.text,
    "max_host_seqs": forms.whole_number,
    "interposition_budget": forms.optional(forms.whole_number),
    "tpot_bound": forms.optional(forms.text),
    "ttft_bound": forms.optional(forms.text),
    "preemption_mode": forms.optional(forms.text),
    "enable_prefix_caching": forms.flag,
    "host_prefix_share": forms.optional(forms.number),
    "kv_disk": forms.optional(forms.path_text),
    "kv_disk_size": forms.optional(forms.size_text),
    "max_num_queued_reqs": forms.optional(forms.whole_number),
    "calibrate": forms.flag,
    "overlap": forms.flag,
    "cuda_graphs": forms.text,
    "link_copies": forms.text,
    "link_waits": forms.text,
    "attention_backend": forms.text,
    "tensor_parallel_size": forms.whole_number,
    "trace": forms.optional(forms.path_text),
    "trace_limit": forms.size_text,
}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One engine's configuration; the command line's engine flags are these fields.

    Sizes are written as people write them (`12GiB`) or `auto`; whole numbers are bytes. The fields
    hold plain JSON values only, so that a configuration can be handed to a child process as text.

    Attributes:
        model: directory of a model in Hugging Face layout, an id in the local Hugging Face cache,
            or `demo` for the packaged model.
        accelerator: `auto`, `cuda[:N]`, `emulated[:SPEC]` or `none`.
        gpu_memory, cpu_memory: memory that Tandem may use on the accelerator and in host DRAM.
            `auto`: what is free there less `gpu_margin`, or what the emulated hardware has; of host
            DRAM what is free less a margin, KV in it up to 8 GiB or one request of full length.
        gpu_margin: accelerator memory to leave free when `gpu_memory` is `auto`; `auto`: a
            twentieth of what is free, at most 1 GiB. The emulated accelerator needs none.
        pinned_memory: host memory that a batch job's plan may pin at most; None: what it says.
        plan: file that `tandem plan --output` wrote: layers' homes and KV pools are as it says, and
            the fields here that it decides too; None: they are chosen as memory allows.
        placement: file that says where layers are; None: as many are resident as fit.
        host_layers: what becomes of those that do not fit: `stream` or `cpu` always, or `auto`,
            whichever is predicted to be faster for a step's size; where rates are not known, they
            are streamed, but of mixtures the CPU computes the experts. `mlp`: their MLPs alone
            leave the accelerator, and are streamed or on the CPU by the same prediction; where
            rates are not known, they are on the CPU.
        expert_hits: file that says how often tokens went to each expert of this model: by it single
            experts are placed; None: nothing is known.
        save_expert_hits: file to write that to when the engine is closed.
        disk_io: how layers on disk are read: `direct` past the page cache, `cached` through it, or
            `gpudirect` into a GPU's memory.
        spool_dir: folders, as in `PATH`, among which layers are divided that must be converted
            before they can be read from disk; None: `tandem` in the user's cache folder.
        disk_copies: folders with copies of the checkpoint on other disks, as in `PATH`: layers on
            disk are read from all of them at the same time; None: there are none.
        dtype: element type of weights, activations and KV; `auto` is the checkpoint's. Where the
            host does the maths, of weights and KV: activations are float32 (ADR 0010).
        quantization: of the layers' linear maps: `auto` is as in the checkpoint, `none` is `dtype`,
            `int8` and `int4` round to so many bits as they are loaded, `w8a8` to 8 and, on the
            host, activations too; a group's size may follow, as in `int4:64`.
        kv_cache_dtype: element type of the KV cache: `float32`, `float16`, `bfloat16`, or `fp8`,
            `int8` and `int4`, which are approximate. `auto` is what `dtype` says.
        cpu_kv_dtype: the same of KV in host memory beside an accelerator; `auto` is what the
            accelerator's pages hold.
        max_model_len: most tokens of prompt and output together; None for the model's own limit.
        seed: from which requests without a seed of their own derive theirs, and dummy weights.
        load_format: `auto`, `safetensors`, or `dummy` for reproducible random weights.
        max_num_seqs: most sequences that run at once.
        max_num_batched_tokens: most tokens computed in one step.
        block_size: tokens per KV block.
        strategy: scheduling strategy, or `auto`.
        kv_placement: tier in which requests keep their KV.
        max_host_seqs: under `auto`, how many requests may keep it on the host while the accelerator
            has no room for them; others wait.
        interposition_budget: under strategies with passes, as `asymmetric`, most of its own that a
            cohort has in a step. None: one beside every layer.
        tpot_bound: under strategy `auto`, how long a step should take at most for the sake of
            requests on the host (`100ms`). None: as long as it pays.
        ttft_bound: within which a request's first token is wanted from its arrival (`2s`): prompts
            that can be read by then come first. None: all in the order of priority and arrival.
        preemption_mode: what happens to the KV of a preempted request: `recompute`, `swap` to the
            host, `mix`, of which the beginning is computed again while the rest is copied back, or
            `auto`, whichever is predicted to be faster for it; where rates are not known, `auto`
            recomputes, and `mix` is refused. None: `swap` where a plan has requests in both tiers
            and says how many in each, and copies are cheap and exact (`plan/preempted.py`), else
            `recompute`.
        host_prefix_share: most of the host's KV memory that holds beginnings of prompts which the
            accelerator had to make room for, from which they are brought back. 0: none; None: a
            half where rates are known, else none.
        kv_disk: folder in which beginnings of prompts are kept that memory has no room for, beyond
            the engine's end too; None: nowhere.
        kv_disk_size: most that they take there; None: 16 GiB.
        max_num_queued_reqs: most requests that wait; beyond it they are refused. None: no bound.
        calibrate: where steps are chosen by predicted time, correct the predictions by what the
            terms of a step are measured to take.
        overlap: False runs the plain loop, which waits for each step before the next.
        cuda_graphs: steps in which rows decode on the accelerator alone, which has all layers, are
            launched as one graph; in others, each layer whose weights stay there, from one
            attention to the next: `auto` on CUDA where that can be and no layer has to leave the
            accelerator for them, `on` also on the emulated accelerator, and refused where it cannot
            be; `off`: every operation is launched by itself.
        link_copies: how KV blocks cross the link of a CUDA device: `auto` by copy engines, or by a
            kernel where they are small and scattered; `batched`: all in one call of the driver.
        link_waits: what waits, on a CUDA device, for the CPU's attention before it is copied there:
            a thread of the host, which then launches the copy, or the copy's stream itself.
        attention_backend: on a CUDA device, `flashinfer` or `torch` (its `varlen_attn`) computes
            attention within prompts, Triton's kernels the rest, but for rows of one token in steps
            that are no graphs, which are `flashinfer`'s, too; `triton`: all of it, before
            compute capability 8.0 all but prompts, which torch's memory-efficient attention
            computes where it can; `auto`: the same, or torch's reference kernels where Triton is
            not there.
        tensor_parallel_size: ranks that share each layer; only 1 exists so far.
        trace: file for what the engine's loop and queues do, as Perfetto reads it; None: nothing
            is written.
        trace_limit: size at which that file ends.

    Raises:
        ConfigError: a value of the wrong type or outside its range (names the parameter).
    """

    model: str
    accelerator: str = "auto"
    gpu_memory: str = "auto"
    cpu_memory: str = "auto"
    pinned_memory: str | None = None
    gpu_margin: str = "auto"
    plan: str | None = None
    placement: str | None = None
    host_layers: HostLayers = "auto"
    expert_hits: str | None = None
    save_expert_hits: str | None = None
    disk_io: DiskIO = "direct"
    spool_dir: str | None = None
    disk_copies: str | None = None
    dtype: str = "auto"
    quantization: str = "auto"
    kv_cache_dtype: str = "auto"
    cpu_kv_dtype: str = "auto"
    max_model_len: int | None = None
    seed: int = 0
    load_format: str = "auto"
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    block_size: int = DEFAULT_BLOCK_SIZE
    strategy: str = "auto"
    kv_placement: KVPlacement = "auto"
    max_host_seqs: int = 0
    interposition_budget: int | None = None
    tpot_bound: str | None = None
    ttft_bound: str | None = None
    preemption_mode: PreemptionMode | None = None
    enable_prefix_caching: bool = True
    host_prefix_share: float | None = None
    kv_disk: str | None = None
    kv_disk_size: str | None = None
    max_num_queued_reqs: int | None = None
    calibrate: bool = False
    overlap: bool = True
    cuda_graphs: CudaGraphs = "auto"
    link_copies: LinkCopies = "auto"
    link_waits: LinkWaits = "host"
    attention_backend: AttentionBackend = "auto"
    tensor_parallel_size: int = 1
    trace: str | None = None
    trace_limit: str = "256MiB"

    def __post_init__(self) -> None:
        forms.apply_forms(self, _FORMS, ConfigError)
        for param in _SIZES:
            _check_size(getattr(self, param), param)
        _at_least(self.max_model_len, 1, "max_model_len")
        _at_least(self.max_num_seqs, 1, "max_num_seqs")
        _at_least(self.max_num_batched_tokens, 1, "max_num_batched_tokens")
        _at_least(self.max_num_queued_reqs, 0, "max_num_queued_reqs")
        _one_of(self.kv_placement, get_args(KVPlacement), "kv_placement")
        _at_least(self.max_host_seqs, 0, "max_host_seqs")
        _check_share(self.host_prefix_share)
        for param in ("kv_disk_size", "pinned_memory"):
            if (size := getattr(self, param)) is not None:
                parse_size(size, param=param)
        _at_least(self.interposition_budget, 0, "interposition_budget")
        for param in ("tpot_bound", "ttft_bound"):
            if (bound := getattr(self, param)) is not None:
                parse_duration_s(bound, param=param)
        _one_of(self.host_layers, get_args(HostLayers), "host_layers")
        if self.preemption_mode is not None:
            _one_of(self.preemption_mode, get_args(PreemptionMode), "preemption_mode")
        _one_of(self.disk_io, get_args(DiskIO), "disk_io")
        _one_of(self.cuda_graphs, get_args(CudaGraphs), "cuda_graphs")
        _one_of(self.link_copies, get_args(LinkCopies), "link_copies")
        _one_of(self.link_waits, get_args(LinkWaits), "link_waits")
        _one_of(self.attention_backend, get_args(AttentionBackend), "attention_backend")
        _one_of(self.load_format, _LOAD_FORMATS, "load_format")
        require_block_size(self.block_size)
        parse_size(self.trace_limit, param="trace_limit")
        if not -(2**63) <= self.seed < 2**64:
            raise ConfigError(f"--seed must be a 64-bit integer, not {self.seed}", param="seed")
        if self.tensor_parallel_size != 1:
            raise ConfigError(
                f"--tensor-parallel-size {self.tensor_parallel_size} is not supported: there is no "
                "distributed executor yet; use 1",
                param="tensor_parallel_size",
            )

    def to_json(self) -> str:
        """This configuration as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "EngineConfig":
        """Inverse of `to_json`.

        Raises:
            ConfigError: a key that is no field, or a value out of range.
        """
        return EngineConfig.from_options(json.loads(text))

    @staticmethod
    def from_options(options: Mapping[str, Any]) -> "EngineConfig":
        """A configuration from its fields by name; `model` must be among them.

        Raises:
            ConfigError: a name that is no field, or a value out of range.
        """
        known = [field.name for field in fields(EngineConfig)]
        unknown = set(options) - set(known)
        if unknown:
            name = min(unknown)
            raise ConfigError(
                f"unknown engine option '{name}'; use some of: {', '.join(known)}", param=name
            )
        return EngineConfig(**options)


def _flag(param: str) -> str:
    """As it is given on a command line."""
    return f"--{param.replace('_', '-')}"


def _at_least(value: int | None, minimum: int, param: str) -> None:
    if value is not None and value < minimum:
        raise ConfigError(f"{_flag(param)} must be at least {minimum}, not {value}", param=param)


def _one_of(value: str, known: tuple[str, ...], param: str) -> None:
    if value not in known:
        names = ", ".join(known)
        raise ConfigError(f"unknown {_flag(param)} '{value}'; use one of: {names}", param=param)


def _check_size(text: str, param: str) -> None:
    """Also where it will have no effect: what cannot be read was meant for something."""
    if text != "auto":
        parse_size(text, param=param)


def _check_share(share: float | None) -> None:
    if share is not None and not 0 <= share <= 1:
        raise ConfigError(
            f"--host-prefix-share must be between 0 and 1, not {share}", param="host_prefix_share"
        )

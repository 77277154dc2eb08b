"""From a model's folder to a loaded model: element types, what must be said, and loading itself."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tandem.devices.cuda import gpu_direct
from tandem.devices.cuda.device import has_bfloat16
from tandem.devices.cuda.memory import pin
from tandem.engine.building.target import Target
from tandem.engine.sizing.disk_folders import copy_folders, spool_folders
from tandem.engine.sizing.fp8_choice import reason_against_fp8
from tandem.engine.sizing.kv_choice import choose_host_kv, choose_kv, kv_notes
from tandem.engine.sizing.precision_choice import choose_precision
from tandem.engine.sizing.quantization_choice import choose_quantization, stored_weights
from tandem.kernels import native
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan.sweep_layers import SweepChoice
from tandem.plan.weights import EmbeddingHome
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.progress import Progress

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool


def choose_types(
    config: EngineConfig,
    spec: ModelSpec,
    target: Target,
    directory: Path,
    pool: "NativePool | None",
    *,
    in_blocks: bool = False,
) -> tuple[Precision, tuple[str, ...]]:
    """Element types of everything, and what to say about them.

    Args:
        pool: of the compiled kernels, if they do the maths.
        in_blocks: the engine is one of blocks of batches.

    Raises:
        TandemError: types that there are not, or that the model or the machine cannot have.
    """
    choice = choose_precision(
        config.dtype,
        spec,
        host_maths=target.device.type == "cpu",
        compiled=pool is not None,
        available_bytes=target.host.available_bytes,
        has_bfloat16=has_bfloat16(target.device),
    )
    lacking = device_kernel_notes(target.device)
    against_fp8 = reason_against_fp8(config, target.choice.kind, lacking, in_blocks=in_blocks)
    precision, weight_notes = choose_quantization(
        config.quantization,
        spec,
        _with_kv(config, spec, choice.precision, target),
        stored_weights(directory, config, spec, against_fp8),
        compiled=pool is not None,
    )
    notes = (choice.note,) if choice.note else ()
    notes += kv_notes(spec, precision, in_blocks=in_blocks)
    return precision, notes + weight_notes


def _with_kv(
    config: EngineConfig, spec: ModelSpec, precision: Precision, target: Target
) -> Precision:
    """With the KV types of both tiers."""
    return choose_host_kv(
        config.cpu_kv_dtype,
        spec,
        choose_kv(config.kv_cache_dtype, spec, precision),
        host_only=target.choice.kind == "none",
        host_bytes=target.capacities.host_bytes,
    )


def host_kernel_notes(spec: ModelSpec) -> tuple[str, ...]:
    """Says so if attention in host memory is left to the reference kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    reason = native.reason_against(spec.head_dim)
    if reason is not None:
        return (reason,)
    native.choose_isa()
    return ()


def device_kernel_notes(device: torch.device) -> tuple[str, ...]:
    """Says so if attention on a GPU is left to the reference kernels."""
    if device.type != "cuda":
        return ()
    from tandem.kernels import triton_support

    reason = triton_support.reason_against()
    return () if reason is None else (triton_support.unavailable_message(reason),)


def require_compiled(spec: ModelSpec, *, computes: bool) -> None:
    """Refuse layers on disk where the compiled core, which reads them, cannot run.

    Args:
        computes: its kernels compute those layers, too.

    Raises:
        ConfigError: says why it cannot.
    """
    reason = None if native.available() else native.unavailable_message()
    if computes:
        reason = native.reason_against(spec.head_dim)
    if reason is not None:
        raise ConfigError(
            f"layers do not fit in host memory, and reading them from disk needs the compiled "
            f"kernels ({reason}); raise --cpu-memory",
            param="cpu_memory",
        )


def disk_placement(config: EngineConfig, on_disk: tuple[int, ...]) -> DiskPlacement:
    """How layers on disk are read.

    Raises:
        ConfigError: as `spool_folders` and `copy_folders`.
    """
    return DiskPlacement(on_disk, config.disk_io, spool_folders(config), copy_folders(config))


def refuse_direct_on_cpu(config: EngineConfig, computed: tuple[int, ...]) -> None:
    """Raises:
    ConfigError: the CPU computes layers that would be read past it.
    """
    if config.disk_io == "gpudirect" and computed:
        raise ConfigError(
            "--disk-io gpudirect reads layers into the GPU's memory, and the CPU computes "
            f"{len(computed)} of those on disk; use --host-layers stream, or --disk-io direct",
            param="disk_io",
        )


def disk_notes(config: EngineConfig, on_disk: tuple[int, ...], *, on_gpu: bool) -> tuple[str, ...]:
    """Says of each option about layers on disk that there are none, if there are none; else, of a
    GPU, which way they come to it, and why.

    Raises:
        ConfigError: as `copy_folders`.
    """
    if on_disk:
        return (_way_note(config),) if on_gpu else ()
    asked = {
        "--spool-dir": config.spool_dir,
        "--disk-copies": copy_folders(config),
        "--disk-io": config.disk_io != "direct",
    }
    return tuple(
        f"{flag} changes nothing: all layers are in memory, and none is read from disk"
        for flag, given in asked.items()
        if given
    )


def _way_note(config: EngineConfig) -> str:
    if config.disk_io == "gpudirect":
        return (
            "layers on disk are read straight into the GPU's memory (--disk-io gpudirect: kvikio "
            f"{gpu_direct.version()})"
        )
    return (
        f"layers on disk are read into host memory first (--disk-io {config.disk_io}); GPUDirect "
        f"Storage (--disk-io gpudirect) {gpu_direct.describe()}"
    )


def with_usable_ends(spec: ModelSpec) -> tuple[ModelSpec, tuple[str, ...]]:
    """The model without end-of-sequence ids outside its vocabulary, and a note if it had any.

    Such an id can never be sampled, but banning it (`min_tokens`) would write outside the logits.
    """
    usable = tuple(token for token in spec.eos_token_ids if 0 <= token < spec.vocab_size)
    dropped = [str(token) for token in spec.eos_token_ids if token not in usable]
    if not dropped:
        return spec, ()
    note = (
        f"ignored end-of-sequence ids outside the vocabulary of {spec.vocab_size}: "
        f"{', '.join(dropped)}; mend eos_token_id in config.json or generation_config.json"
    )
    return replace(spec, eos_token_ids=usable), (note,)


def load_reported(
    directory: Path,
    config: EngineConfig,
    precision: Precision,
    device: torch.device,
    pool: "NativePool | None",
    layers: SweepChoice,
    on_disk: tuple[int, ...],
    embedding: EmbeddingHome,
    progress: Progress,
    *,
    resident_quantized: bool = True,
) -> Model:
    """Load the model, and say how far it is.

    Args:
        on_disk: layers that stay in files.
        embedding: where token embeddings lie.
        resident_quantized: whether layers on the accelerator are quantized as the others.

    Raises:
        ModelError: a missing, damaged or unsupported model.
    """

    def report(done_bytes: int, total_bytes: int, name: str) -> None:
        del name
        progress("loading weights", done_bytes, total_bytes)

    load_format = "dummy" if config.load_format == "dummy" else "auto"
    return load_model(
        directory,
        precision,
        device,
        load_format,
        config.seed,
        report,
        pool,
        layers,
        pin if device.type == "cuda" else None,
        disk_placement(config, on_disk),
        config.max_model_len,
        embedding,
        resident_quantized=resident_quantized,
    )

"""Whether the attention kernels that `--attention-backend` names, or means, can serve a model."""

import torch

from tandem.kernels.triton_support import reason_against
from tandem.models.weights import torch_dtype
from tandem.spec.config import AttentionBackend
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision


def check_attention_backend(
    name: AttentionBackend, spec: ModelSpec, precision: Precision, device: torch.device
) -> None:
    """Of kernels that were named.

    Raises:
        ConfigError: they are not there, or do not take such heads or pages, or not on this device.
    """
    reason = reason_against()
    if reason is None and name != "triton":
        reason = _against_library(name, spec, precision, device)
    if reason is not None:
        raise ConfigError(
            f"--attention-backend {name} cannot be: {reason}; or leave it out",
            param="attention_backend",
        )


def prompt_notes(
    name: AttentionBackend, spec: ModelSpec, precision: Precision, device: torch.device
) -> tuple[str, ...]:
    """Says if prompts on a GPU are left to kernels that are slow."""
    if device.type != "cuda" or name in ("flashinfer", "torch"):
        return ()
    from tandem.kernels.open_prompts import against_efficient
    from tandem.kernels.triton_support import unit_of

    unit = unit_of(device)
    if unit is None or unit.has_dot:
        return ()
    held = torch_dtype(precision.kv) if isinstance(precision.kv, DType) else torch.uint8
    dtype = torch_dtype(precision.activations)
    reason = against_efficient(spec.head_dim, spec.attention_soft_cap, held, dtype)
    if reason is None and not any(spec.layer_windows):
        return ()
    reason = reason or "its kernels are not asked for windows, which layers of this model have"
    return (f"prompts are read on the GPU by slow kernels, not memory-efficient ones: {reason}",)


def _against_library(
    name: AttentionBackend, spec: ModelSpec, precision: Precision, device: torch.device
) -> str | None:
    # Imported where they are asked for: a first token waits for what is imported.
    from tandem.kernels.open_prompts import (
        NoPromptLibraryError,
        against_device,
        require_prompts,
    )

    if precision.kv != precision.activations:
        return f"its kernels read KV of {precision.activations} alone, not of {precision.kv}"
    dtype = torch_dtype(precision.activations)
    if (reason := against_device(name, device, dtype)) is not None:
        return reason
    try:
        require_prompts(name, spec.head_dim, spec.attention_soft_cap, dtype)
    except NoPromptLibraryError as error:
        return str(error)
    return None

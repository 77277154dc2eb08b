"""Whether the attention kernels that `--attention-backend` names can serve a model."""

import torch

from tandem.devices.cuda.device import compute_capability
from tandem.kernels.triton_support import reason_against
from tandem.models.weights import torch_dtype
from tandem.spec.config import AttentionBackend
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

_LEAST_CAPABILITY = (8, 0)
"""Of matrix units as these libraries use them."""


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


def _against_library(
    name: AttentionBackend, spec: ModelSpec, precision: Precision, device: torch.device
) -> str | None:
    # Imported where they are asked for: a first token waits for what is imported.
    from tandem.kernels.open_prompts import NoPromptLibraryError, require_prompts

    if precision.kv != precision.activations:
        return f"its kernels read KV of {precision.activations} alone, not of {precision.kv}"
    dtype = torch_dtype(precision.activations)
    if name == "torch" or dtype is torch.bfloat16:
        found = compute_capability(device)
        if found < _LEAST_CAPABILITY:
            return (
                f"its kernels for {precision.activations} begin with compute capability 8.0, and "
                f"this GPU has {found[0]}.{found[1]}"
            )
    try:
        require_prompts(name, spec.head_dim, spec.attention_soft_cap, dtype)
    except NoPromptLibraryError as error:
        return str(error)
    return None

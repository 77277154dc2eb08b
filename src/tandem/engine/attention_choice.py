"""Whether the attention kernels that `--attention-backend` names can serve a model."""

from tandem.kernels.triton_support import reason_against
from tandem.models.weights import torch_dtype
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision


def check_attention_backend(config: EngineConfig, spec: ModelSpec, precision: Precision) -> None:
    """Raises:
    ConfigError: kernels were named that are not there, or do not take such heads or pages.
    """
    name = config.attention_backend
    if name == "auto":
        return
    reason = reason_against()
    if reason is None and name != "triton":
        reason = _against_library(name, spec, precision)
    if reason is not None:
        raise ConfigError(
            f"--attention-backend {name} cannot be: {reason}; or leave it out",
            param="attention_backend",
        )


def _against_library(name: str, spec: ModelSpec, precision: Precision) -> str | None:
    # Imported where they are asked for: a first token waits for what is imported.
    from tandem.kernels.open_prompts import NoPromptLibraryError, require_prompts

    if precision.kv != precision.activations:
        return f"its kernels read KV of {precision.activations} alone, not of {precision.kv}"
    dtype = torch_dtype(precision.activations)
    try:
        require_prompts(name, spec.head_dim, spec.attention_soft_cap, dtype)
    except NoPromptLibraryError as error:
        return str(error)
    return None

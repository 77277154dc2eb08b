"""Which kernels serve which tier."""

from typing import TYPE_CHECKING

import torch

from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import (
    MergingKernels,
    ReferenceKernels,
    StaticKernels,
    TierKernels,
    accelerator_kernels,
)
from tandem.memory.page import KVPageSpec
from tandem.models.weights import torch_dtype
from tandem.spec.config import AttentionBackend
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool


def choose_kernels(
    model: ModelSpec,
    page: KVPageSpec,
    device: torch.device,
    dtype: torch.dtype,
    *,
    host_only: bool = False,
    pool: "NativePool | None" = None,
    attention: AttentionBackend = "auto",
) -> dict[Tier, TierKernels]:
    """Compiled kernels for pages in host memory, Triton's for a GPU's, torch where they lack.

    Args:
        device: where the device tier's pages are.
        dtype: of the model's activations.
        host_only: the device tier is host memory, too, and nobody's emulation; there is no other.
        pool: threads of the compiled kernels; by default new ones.
        attention: what attends to prompts on a GPU; before compute capability 8.0, `auto` and
            `triton` mean torch's memory-efficient attention where it can serve.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed, or those kernels cannot be.
    """
    host = host_kernels(model, page_shape(page.on(Tier.HOST)), pool)
    if host_only:
        return {Tier.HOST: host, Tier.DEVICE: host}
    shape = page_shape(page.on(Tier.DEVICE))
    kernels = device_kernels(model, shape, device, dtype)
    if attention in ("flashinfer", "torch"):
        kernels = _with_prompts(kernels, attention, model, shape, device, dtype)
    elif device.type == "cuda":
        kernels = _with_own_prompts(kernels, model, page.on(Tier.DEVICE), device, dtype)
    return {Tier.HOST: host, Tier.DEVICE: kernels}


def _with_own_prompts(
    kernels: TierKernels,
    model: ModelSpec,
    page: KVPageSpec,
    device: torch.device,
    dtype: torch.dtype,
) -> TierKernels:
    # Imported where there is a GPU: a first token waits for what is imported.
    from tandem.kernels.open_prompts import with_own_prompts

    held = torch.uint8 if page.held_in_bytes else torch_dtype(page.float_type)
    scale, soft_cap = model.attention_scale, model.attention_soft_cap
    return with_own_prompts(kernels, device, scale, soft_cap, held, dtype)


def _with_prompts(
    kernels: TierKernels,
    name: str,
    model: ModelSpec,
    shape: PageShape,
    device: torch.device,
    dtype: torch.dtype,
) -> TierKernels:
    """The same, prompts by a library.

    Raises:
        ConfigError: it cannot be.
    """
    # Imported where they are asked for: a first token waits for what is imported.
    from tandem.kernels.open_prompts import NoPromptLibraryError, open_prompts
    from tandem.kernels.prompt_kernels import PromptKernels

    scale, soft_cap = model.attention_scale, model.attention_soft_cap
    try:
        library = open_prompts(name, device, model.num_heads, shape, scale, soft_cap, dtype)
    except NoPromptLibraryError as error:
        raise ConfigError(
            f"--attention-backend {name} cannot be: {error}; or leave it out",
            param="attention_backend",
        ) from None
    assert isinstance(kernels, StaticKernels)
    assert isinstance(kernels, MergingKernels)
    return PromptKernels(kernels, library)


def device_kernels(
    model: ModelSpec, shape: PageShape, device: torch.device, dtype: torch.dtype
) -> TierKernels:
    """What attends to pages on an accelerator.

    Args:
        dtype: of the model's activations.
    """
    scale, soft_cap = model.attention_scale, model.attention_soft_cap
    return accelerator_kernels(device, model.num_heads, shape, scale, soft_cap, dtype)


def page_shape(page: KVPageSpec) -> PageShape:
    """Of one tier's pages in one layer."""
    return PageShape(page.local_kv_heads, page.block_size, page.head_dim, page.code_bits)


def host_kernels(
    model: ModelSpec, shape: PageShape, pool: "NativePool | None" = None
) -> TierKernels:
    """What attends to pages in host memory.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    pool = pool or open_pool()
    if pool is None or native.reason_against(shape.head_dim) is not None:
        return reference_kernels(model, shape, torch.device("cpu"))
    from tandem.kernels.compiled_kernels import CompiledKernels

    scale, soft_cap = model.attention_scale, model.attention_soft_cap
    return CompiledKernels(pool, model.num_heads, shape, scale, soft_cap)


def reference_kernels(model: ModelSpec, shape: PageShape, device: torch.device) -> ReferenceKernels:
    """What attends anywhere, in torch."""
    return ReferenceKernels(device, shape, model.attention_scale, model.attention_soft_cap)

"""Which kernels serve which tier."""

import torch

from tandem.kernels import native
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import ReferenceKernels, TierKernels
from tandem.memory.page import KVPageSpec
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


def choose_kernels(
    model: ModelSpec, page: KVPageSpec, device: torch.device, *, host_only: bool = False
) -> dict[Tier, TierKernels]:
    """Compiled kernels for pages in host memory, where they could be built; torch elsewhere.

    Args:
        device: where the device tier's pages are.
        host_only: the device tier is host memory, too, and nobody's emulation.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    _, heads, size, dim = page.page_shape
    shape = PageShape(heads, size, dim)
    host = host_kernels(model, shape)
    on_device = ReferenceKernels(device, shape, model.attention_scale)
    return {Tier.HOST: host, Tier.DEVICE: host if host_only else on_device}


def host_kernels(model: ModelSpec, shape: PageShape) -> TierKernels:
    """What attends to pages in host memory, on as many threads as torch uses, at most.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    if native.reason_against(shape.head_dim) is not None:
        return ReferenceKernels(torch.device("cpu"), shape, model.attention_scale)
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.kernels.native_pool import NativePool, usable_threads

    pool = NativePool(min(usable_threads(), torch.get_num_threads()))
    return CompiledKernels(pool, model.num_heads, shape, model.attention_scale)

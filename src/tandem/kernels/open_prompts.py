"""Opens what is to compute attention within prompts, or says why it cannot be."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

import torch

from tandem.devices.cuda.device import compute_capability
from tandem.kernels import efficient_prompts, flashinfer_prompts, triton_support, varlen_prompts
from tandem.kernels.efficient_prompts import EfficientPrompts
from tandem.kernels.flashinfer_prompts import FlashInferPrompts
from tandem.kernels.pages import PageShape
from tandem.kernels.prompt_kernels import PromptKernels, PromptLibrary
from tandem.kernels.tier_kernels import MergingKernels, StaticKernels, TierKernels
from tandem.kernels.varlen_prompts import VarlenPrompts

_FLASHINFER = "install flashinfer-python 0.6 or later"
_SIXTEEN_BITS = (torch.float16, torch.bfloat16)


class NoPromptLibraryError(Exception):
    """It cannot be here, or not for this model; says why."""


def open_prompts(
    name: str,
    device: torch.device,
    heads: int,
    shape: PageShape,
    scale: float,
    soft_cap: float,
    dtype: torch.dtype,
) -> PromptLibrary:
    """`flashinfer`, or `torch`: its `varlen_attn`.

    Args:
        device: of pages. heads: query heads. shape: of one layer's pages, of `dtype`.
        scale: of scores. soft_cap: what bounds them; 0: nothing.
        dtype: of queries.

    Raises:
        NoPromptLibraryError: it is not installed, too old, or has no kernels for such heads.
    """
    require_prompts(name, shape.head_dim, soft_cap, dtype)
    if device.type == "cuda" and (reason := against_device(name, device, dtype)) is not None:
        raise NoPromptLibraryError(reason)
    if name == "flashinfer":
        library = _import("flashinfer", _FLASHINFER)
        return FlashInferPrompts(library, device, heads, shape, scale, soft_cap, dtype)
    module = _import("torch.nn.attention.varlen", "it needs torch 2.11 or later")
    wanted, attend = module.AuxRequest(lse=True), module.varlen_attn
    asks = varlen_prompts.GROUPS in inspect.signature(attend).parameters
    return VarlenPrompts(attend, wanted, device, heads, shape, scale, asks_for_groups=asks)


def require_prompts(name: str, head_dim: int, soft_cap: float, dtype: torch.dtype) -> None:
    """Before a model is loaded.

    Raises:
        NoPromptLibraryError: as `open_prompts`.
    """
    if dtype not in _SIXTEEN_BITS:
        raise NoPromptLibraryError(f"its kernels multiply in 16 bits, not in {dtype}")
    if name == "flashinfer":
        if head_dim not in flashinfer_prompts.HEAD_DIMS:
            known = ", ".join(map(str, flashinfer_prompts.HEAD_DIMS))
            raise NoPromptLibraryError(f"its kernels take heads of {known}, not {head_dim}")
        library = _import("flashinfer", _FLASHINFER)
        for wrapper, wanted in flashinfer_prompts.CALLS.items():
            _require_calls(library, wrapper, wanted)
        return
    if soft_cap:
        raise NoPromptLibraryError("its kernels do not bound scores, as this model does")
    if head_dim > varlen_prompts.MAX_HEAD_DIM or head_dim % 8:
        most = varlen_prompts.MAX_HEAD_DIM
        raise NoPromptLibraryError(
            f"its kernels take heads of multiples of 8 up to {most}, not {head_dim}"
        )
    module = _import("torch.nn.attention.varlen", "it needs torch 2.11 or later")
    has = set(inspect.signature(module.varlen_attn).parameters)
    if not has >= varlen_prompts.ARGUMENTS:
        missing = ", ".join(sorted(varlen_prompts.ARGUMENTS - has))
        raise NoPromptLibraryError(
            f"varlen_attn of torch {torch.__version__} has no {missing}; it needs torch 2.11 or "
            "later"
        )


def against_device(name: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why its kernels for such queries are not for a GPU of that capability; None if they are."""
    if name != "torch" and dtype is not torch.bfloat16:
        return None
    found = compute_capability(device)
    if found >= triton_support.FIRST_WITH_DOT:
        return None
    kind = str(dtype).removeprefix("torch.")
    return (
        f"its kernels for {kind} begin with compute capability 8.0, and this GPU has "
        f"{found[0]}.{found[1]}"
    )


def _require_calls(library: Any, wrapper: str, wanted: Mapping[str, frozenset[str]]) -> None:
    """By what their methods take: of a version that is not said everywhere."""
    made = getattr(library, wrapper, None)
    for method, arguments in wanted.items():
        call = getattr(made, method, None)
        if call is None:
            raise NoPromptLibraryError(f"flashinfer has no {wrapper}.{method}; {_FLASHINFER}")
        has = inspect.signature(call).parameters
        if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in has.values()):
            continue  # it checks them itself
        if missing := ", ".join(sorted(arguments - set(has))):
            said = f"flashinfer's {wrapper}.{method} has no {missing}"
            raise NoPromptLibraryError(f"{said}; {_FLASHINFER}")


def _import(name: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise NoPromptLibraryError(f"{name} cannot be imported ({error}); {remedy}") from error


def against_efficient(
    head_dim: int, soft_cap: float, held: torch.dtype, dtype: torch.dtype
) -> str | None:
    """Why torch's memory-efficient attention cannot compute prompts before compute capability 8.0;
    None if it can, but for layers whose tokens see a window.

    Args:
        held: by pages. dtype: of queries.
    """
    if dtype not in efficient_prompts.TYPES:
        return f"its kernels there multiply in float16 or float32, not in {dtype} (--dtype float16)"
    if held is not dtype:
        return f"its kernels read KV of {dtype} alone, not of quantized pages or {held}"
    if soft_cap:
        return "its kernels do not bound scores, as this model does"
    if head_dim % efficient_prompts.ALIGNED_DIM:
        aligned = efficient_prompts.ALIGNED_DIM
        return f"its kernels take heads of multiples of {aligned}, not {head_dim}"
    operation = getattr(torch.ops.aten, "_efficient_attention_forward", None)
    if operation is None:
        return f"torch {torch.__version__} does not have it"
    has = {argument.name for argument in operation.default._schema.arguments}
    if not has >= efficient_prompts.ARGUMENTS:
        missing = ", ".join(sorted(efficient_prompts.ARGUMENTS - has))
        return f"that of torch {torch.__version__} has no {missing}"
    return None


def with_own_prompts(
    kernels: TierKernels,
    device: torch.device,
    scale: float,
    soft_cap: float,
    held: torch.dtype,
    dtype: torch.dtype,
) -> TierKernels:
    """A GPU's kernels; those that do not use its matrix units, with prompts by torch's
    memory-efficient attention where it can compute them (`against_efficient`).

    Args:
        device: of pages, which hold `held`. scale: of scores. soft_cap: what bounds them; 0:
            nothing.
        dtype: of queries.
    """
    unit = triton_support.unit_of(device)
    if unit is None or unit.has_dot:
        return kernels
    if against_efficient(kernels.shape.head_dim, soft_cap, held, dtype) is not None:
        return kernels
    assert isinstance(kernels, StaticKernels)
    assert isinstance(kernels, MergingKernels)
    attend = torch.ops.aten._efficient_attention_forward
    return PromptKernels(kernels, EfficientPrompts(attend, device, kernels.shape, scale))

"""Memory of engines and peers that are gone, and what they leave of the device."""

import gc
from typing import Any

import torch

from tandem.devices.cuda.memory import give_back_memory


def give_back() -> None:
    """Collect what knows itself, and give back what torch keeps of it, on the device and pinned in
    host memory: else the next engine or peer finds it taken.
    """
    gc.collect()
    give_back_memory()
    pinned: Any = getattr(torch._C, "_host_emptyCache", None)  # from torch 2.5 on
    if pinned is not None and torch.cuda.is_initialized():
        pinned()


def device_answers() -> bool:
    """Whether the device still works for this process: after an error of a kernel's, none does."""
    if not torch.cuda.is_initialized():
        return True
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True

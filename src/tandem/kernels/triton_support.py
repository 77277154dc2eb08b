"""Whether Triton is there, and what its kernels must know of a device.

The rest of the package imports without Triton; the torch kernels are then used, and said to be.
"""

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FIRST_WITH_DOT = (8, 0)  # the first compute capability whose matrix units are used


@dataclass(frozen=True, slots=True)
class TritonDevice:
    """A device that Triton compiles for.

    Attributes:
        processors: streaming multiprocessors; work is cut so that all have some.
        has_dot: its matrix units can be used (see `FIRST_WITH_DOT`).
    """

    processors: int
    has_dot: bool


def available() -> bool:
    """Whether Triton can be imported; torch for CUDA brings it."""
    return importlib.util.find_spec("triton") is not None


@cache
def unit_of(device: "torch.device") -> TritonDevice | None:
    """What a GPU has; None of other devices, and without Triton."""
    if device.type != "cuda" or not available():
        return None
    from tandem.devices.cuda import compute_capability, multiprocessors

    has_dot = compute_capability(device) >= FIRST_WITH_DOT
    return TritonDevice(multiprocessors(device), has_dot)


def unavailable_message() -> str:
    """One line for users of a GPU without Triton."""
    return (
        "attention and quantized weights on the GPU run on slow reference kernels, because Triton "
        "is not installed: install torch from a CUDA index, which brings it, or the package triton"
    )

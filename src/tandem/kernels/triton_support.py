"""Whether Triton is there, and what its kernels must know of a device.

The rest of the package imports without Triton; the torch kernels are then used, and said to be.
"""

import importlib.util
import os
import shutil
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.kernels.tiles import USUAL_TILES, TileSettings, tiles_for

if TYPE_CHECKING:
    import torch

FIRST_WITH_DOT = (8, 0)  # the first compute capability whose matrix units are used
FIRST_WITH_E4M3 = (8, 9)  # the first whose instructions convert e4m3
_HEADER_VARIABLES = ("CPATH", "C_INCLUDE_PATH")  # where compilers look for headers, too


@dataclass(frozen=True, slots=True)
class TritonDevice:
    """A device that Triton compiles for.

    Attributes:
        processors: streaming multiprocessors; work is cut so that all have some.
        has_dot: its matrix units can be used (see `FIRST_WITH_DOT`).
        tiles: how kernels are cut on it.
        has_e4m3: it converts floats of one byte.
    """

    processors: int
    has_dot: bool
    tiles: TileSettings = USUAL_TILES
    has_e4m3: bool = False


def available() -> bool:
    """Whether Triton can be imported; torch for CUDA brings it."""
    return importlib.util.find_spec("triton") is not None


def reason_against() -> str | None:
    """Why a GPU is left to the torch kernels, with the remedy; None if it is not.

    With the first kernel that it starts, Triton compiles what calls the driver
    (`triton/runtime/build.py`), in C against Python's headers: containers often have neither.
    """
    if not available():
        return (
            "Triton is not installed: install torch from a CUDA index, which brings it, or the "
            "package triton"
        )
    if not any(map(shutil.which, ("gcc", "clang"))) and "CC" not in os.environ:
        return "Triton needs a C compiler: install gcc or clang, or name one in CC"
    if not _has_python_headers():
        return "Triton needs Python's headers (Python.h): install python3-dev, or python3-devel"
    return None


def _has_python_headers() -> bool:
    if any(name in os.environ for name in _HEADER_VARIABLES):
        return True
    scheme = sysconfig.get_default_scheme()
    # Debian's own scheme has no headers; Triton looks where this one has them, too
    scheme = "posix_prefix" if scheme == "posix_local" else scheme
    return Path(sysconfig.get_path("include", scheme), "Python.h").is_file()


@cache
def unit_of(device: "torch.device") -> TritonDevice | None:
    """What a GPU has; None of other devices, and where Triton cannot run."""
    if device.type != "cuda" or reason_against() is not None:
        return None
    from tandem.devices.cuda.device import compute_capability, multiprocessors

    capability = compute_capability(device)
    has_dot, has_e4m3 = capability >= FIRST_WITH_DOT, capability >= FIRST_WITH_E4M3
    return TritonDevice(multiprocessors(device), has_dot, tiles_for(capability), has_e4m3)


def unavailable_message(reason: str) -> str:
    """One line for users of a GPU on which Triton cannot run."""
    return f"attention and quantized weights on the GPU run on slow reference kernels: {reason}"

"""The threads of the compiled kernels, where there are any."""

from typing import TYPE_CHECKING

import torch

from tandem.kernels import native

if TYPE_CHECKING:
    from tandem.kernels.native_pool import NativePool


def open_pool() -> "NativePool | None":
    """A new pool of at most as many threads as torch uses; None without compiled kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """
    if not native.available():
        return None
    from tandem.kernels.native_pool import NativePool, usable_threads

    return NativePool(min(usable_threads(), torch.get_num_threads()))

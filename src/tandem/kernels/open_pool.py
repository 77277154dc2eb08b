"""The threads of the compiled kernels, where there are any."""

import os
from concurrent.futures import ThreadPoolExecutor
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


def open_pool_on(cores: tuple[int, ...] | None) -> "NativePool | None":
    """A new pool with a thread on each of `cores`, or one anywhere if that is None.

    None without compiled kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
        OSError: the process may not use these cores.
    """
    if not native.available():
        return None
    from tandem.kernels.native_pool import NativePool

    if cores is None:
        return NativePool(1)

    def open_there() -> NativePool:
        os.sched_setaffinity(0, cores)  # of this thread, and of those that it starts
        return NativePool(len(cores), pin=True)

    with ThreadPoolExecutor(1, thread_name_prefix="tandem-open-pool") as opener:
        return opener.submit(open_there).result()

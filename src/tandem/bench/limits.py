"""Limits of the host, probed by the same threads as what is held against them."""

import time
from collections.abc import Callable

import torch

from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.open_pool import open_pool, open_pool_on

_CACHE_MULTIPLE = 8
_GEMM_SIZE = 2048


def read_probe(cores: tuple[int, ...] | None = None) -> Callable[[], float]:
    """A probe that returns bytes/s of plain reading, over eight times the last-level cache.

    By the compiled kernels' own, which reads a few strips at once, where they are there: a sum by
    torch reads a single one, which a core does at four fifths of the rate.

    Args:
        cores: that the compiled kernels' threads run on; None: as many threads as torch has.
    """
    numbers = bulk_zeros((_CACHE_MULTIPLE * last_level_cache_bytes() // 4,), torch.float32)
    numbers.normal_()
    pool = open_pool() if cores is None else open_pool_on(cores)
    if pool is not None:
        return lambda: numbers.nbytes / pool.read_seconds(numbers)

    def probe() -> float:
        begin = time.perf_counter()
        numbers.sum().item()
        return numbers.nbytes / (time.perf_counter() - begin)

    return probe


def gemm_probe() -> Callable[[], float]:
    """A probe that returns FLOP/s of a square fp32 matrix product."""
    size = _GEMM_SIZE
    a, b = torch.randn(size, size), torch.randn(size, size)
    out = torch.empty(size, size)

    def probe() -> float:
        begin = time.perf_counter()
        torch.mm(a, b, out=out)
        return 2 * size**3 / (time.perf_counter() - begin)

    return probe

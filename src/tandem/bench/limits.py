"""Limits of the host, probed by the same threads as what is held against them."""

import time
from collections.abc import Callable

import torch

from tandem.devices.cpu_cache import last_level_cache_bytes
from tandem.devices.host_memory import bulk_zeros

_CACHE_MULTIPLE = 8
_GEMM_SIZE = 2048


def read_probe() -> Callable[[], float]:
    """A probe that returns bytes/s of plain reading, over eight times the last-level cache."""
    numbers = bulk_zeros((_CACHE_MULTIPLE * last_level_cache_bytes() // 4,), torch.float32)
    numbers.normal_()

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

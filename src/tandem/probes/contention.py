"""Decode attention on the CPU while something is copied: what each leaves to the other.

Import this module only if `native.available()`.
"""

import time
from collections.abc import Callable

import numpy as np
import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.beside import beside
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.native_samples import attending
from tandem.probes.timing import Sample
from tandem.profiling.measurements import Contention
from tandem.spec.dtype import DType

_LEAST_S = 0.2

Copy = Callable[[], int]
"""Copies something, waits for its end, and returns how many bytes that were."""


def copy_in_memory(size_bytes: int) -> Copy:
    """One thread copies within the host's memory; its interpreter's lock is free meanwhile."""
    source = np.full(size_bytes, 1, np.uint8)
    target = np.zeros_like(source)

    def copy() -> int:
        np.copyto(target, source)
        return size_bytes

    return copy


def measure_contention(pool: NativePool, effort: Effort, name: str, copy: Copy) -> Contention:
    """Both rates, each alone and both at once."""
    rows, context = max(effort.batches), max(effort.contexts)
    pages, own = probe_pages(effort, DType.FLOAT16)
    layers = make_layers(effort.heads, Workload("contention", (context,) * rows), len(pages))
    kv_bytes = rows * context * effort.heads.key_elements * DType.FLOAT16.size_bytes
    attend = attending(pool, effort.heads, pages, layers, own)
    copied: list[tuple[int, float]] = []

    def record() -> None:
        begin = time.perf_counter()
        size = copy()
        copied.append((size, time.perf_counter() - begin))

    def attention_rate() -> float:
        with torch.inference_mode():
            return _attention_rate(attend, kv_bytes)

    attention_rate()
    copy()
    return Contention(
        name,
        attention_alone_bytes_per_s=attention_rate(),
        copy_alone_bytes_per_s=_copy_rate(copy),
        attention_beside_bytes_per_s=beside(attention_rate, record)(),
        copy_beside_bytes_per_s=sum(n for n, _ in copied) / sum(s for _, s in copied),
    )


def _attention_rate(attend: Sample, kv_bytes: int) -> float:
    times: list[float] = []
    while sum(times) < _LEAST_S:
        times.append(attend(len(times)))
    return kv_bytes * len(times) / sum(times)


def _copy_rate(copy: Copy) -> float:
    size, taken_s = 0, 0.0
    while taken_s < _LEAST_S:
        begin = time.perf_counter()
        size += copy()
        taken_s += time.perf_counter() - begin
    return size / taken_s

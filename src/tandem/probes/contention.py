"""Decode attention on the CPU while something is copied: what each leaves to the other.

Import this module only if `native.available()`.
"""

import threading
import time
from collections.abc import Callable

import numpy as np
import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.native_samples import attending
from tandem.probes.timing import Sample, timed
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
    with torch.inference_mode():
        attend(0)
        copy()
        attention_alone = _attention_rate(attend, kv_bytes)
        copy_alone = _copy_rate(copy)
        copier = _Copier(copy)
        try:
            attention_beside = _attention_rate(attend, kv_bytes)
        finally:
            copy_beside = copier.end()
    return Contention(name, attention_alone, attention_beside, copy_alone, copy_beside)


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


class _Copier:
    """Copies on a thread of its own, over and over, until it is asked for its rate."""

    def __init__(self, copy: Copy) -> None:
        self._copy, self._stop = copy, threading.Event()
        self._size, self._taken_s = 0, 0.0
        self._error: Exception | None = None
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tandem-probe-copy")
        self._thread.start()
        self._began.wait()

    def _run(self) -> None:
        self._began.set()
        try:
            while not self._stop.is_set():
                self._taken_s += timed(self._step)
        except Exception as error:  # noqa: BLE001 - raised where the rate is asked for
            self._error = error

    def _step(self) -> None:
        self._size += self._copy()

    def end(self) -> float:
        """Bytes/s; raises what the copying raised."""
        self._stop.set()
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._size / self._taken_s

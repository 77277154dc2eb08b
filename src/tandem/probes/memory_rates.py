"""The host's memory: how fast it is read, and how many threads attention takes.

Import this module only if `native.available()`.
"""

from dataclasses import replace

import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.native_samples import attending
from tandem.probes.rounds import median_seconds
from tandem.profiling.measurements import MemoryRates, ThreadPoint
from tandem.spec.dtype import DType


def measure_memory(pool: NativePool, effort: Effort) -> MemoryRates:
    """Reading by the pool's threads."""
    pages, _ = probe_pages(replace(effort, batches=(1,), contexts=(1,)), DType.FLOAT16)
    found = median_seconds({"read": lambda _: pool.read_seconds(pages)}, effort.rounds)
    return MemoryRates(pages.nbytes / found["read"])


def sweep_threads(most: int, effort: Effort) -> tuple[ThreadPoint, ...]:
    """1, 2, 4, ... `most` threads that attend."""
    rows, context = max(effort.batches), max(effort.contexts)
    load = Workload("sweep", (context,) * rows)
    pages, own = probe_pages(effort, DType.FLOAT16)
    layers = make_layers(effort.heads, load, len(pages))
    counts = sorted({*(1 << i for i in range(most.bit_length())), most})
    samples = {
        count: attending(NativePool(count), effort.heads, pages, layers, own) for count in counts
    }
    with torch.inference_mode():
        found = median_seconds(samples, effort.rounds)
    kv_bytes = rows * context * effort.heads.key_elements * DType.FLOAT16.size_bytes
    return tuple(ThreadPoint(count, kv_bytes / found[count]) for count in counts)

"""The host's memory: reading, writing, copying, and how many threads that takes.

Import this module only if `native.available()`.
"""

from dataclasses import replace

import torch

from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.native_pages import copy_now
from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.linear_cases import FLOAT16, MatrixShape, make_copies
from tandem.probes.native_samples import attending, multiplying, reading
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.profiling.measurements import MemoryRates, ThreadPoint
from tandem.spec.dtype import DType


def measure_memory(pool: NativePool, effort: Effort) -> MemoryRates:
    """Reading by the pool's threads, writing by as many of torch's, copying of KV blocks."""
    pages, _ = probe_pages(replace(effort, batches=(1,), contexts=(1,)), DType.FLOAT16)
    source = pages[None]
    target = bulk_zeros(source.shape, source.dtype)
    order = torch.randperm(len(pages))
    before = torch.get_num_threads()
    torch.set_num_threads(pool.num_threads)
    try:
        found = median_seconds(
            {
                "read": lambda _: pool.read_seconds(source),
                "write": lambda i: timed(lambda: target.fill_(i)),
                "copy": lambda _: timed(lambda: copy_now(pool, source, order, target, order)),
            },
            effort.rounds,
        )
    finally:
        torch.set_num_threads(before)
    return MemoryRates(*(source.nbytes / found[name] for name in ("read", "write", "copy")))


def sweep_threads(most: int, effort: Effort) -> tuple[ThreadPoint, ...]:
    """1, 2, 4, ... `most` threads."""
    rows, context, side = max(effort.batches), max(effort.contexts), max(effort.sides)
    load, shape = Workload("sweep", (context,) * rows), MatrixShape(side, side)
    pages, own = probe_pages(effort, DType.FLOAT16)
    layers = make_layers(effort.heads, load, len(pages))
    weights = make_copies(shape, FLOAT16, effort.memory_bytes).native()
    x = torch.randn(1, side)
    counts = sorted({*(1 << i for i in range(most.bit_length())), most})
    samples: dict[tuple[int, str], Sample] = {}
    for count in counts:
        pool = NativePool(count)
        samples[count, "read"] = reading(pool, pages, pages.nbytes)
        samples[count, "attention"] = attending(pool, effort.heads, pages, layers, own)
        samples[count, "linear"] = multiplying(pool, weights, shape, x)
    with torch.inference_mode():
        found = median_seconds(samples, effort.rounds)
    kv_bytes = rows * context * effort.heads.key_elements * DType.FLOAT16.size_bytes
    return tuple(
        ThreadPoint(
            count,
            pages.nbytes / found[count, "read"],
            kv_bytes / found[count, "attention"],
            FLOAT16.size_bytes(shape) / found[count, "linear"],
        )
        for count in counts
    )

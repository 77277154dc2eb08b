"""The host's memory: reading, writing, copying, and how many threads that takes.

Import this module only if `native.available()`.
"""

from dataclasses import replace
from itertools import cycle

import torch

from tandem.kernels.native_pages import copy_now
from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.linear_cases import FLOAT16, MatrixShape, make_copies
from tandem.probes.native_samples import attending, multiplying, reading
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import MemoryRates, ThreadPoint
from tandem.spec.dtype import DType


def measure_memory(pool: NativePool, effort: Effort, memory: WalkedMemory) -> MemoryRates:
    """Reading by the pool's threads, writing by as many of torch's, copying of KV blocks from one
    half to the other.
    """
    pages, _ = probe_pages(replace(effort, batches=(2,), contexts=(1,)), DType.FLOAT16, memory)
    half = len(pages) // 2
    source, target = pages[None, :half], pages[None, half : 2 * half]
    order = torch.randperm(half)
    before = torch.get_num_threads()
    torch.set_num_threads(pool.num_threads)
    try:
        found = median_seconds(
            {
                "read": lambda _: pool.read_seconds(pages),
                "write": lambda i: timed(lambda: pages.fill_(i)),
                "copy": lambda _: timed(lambda: copy_now(pool, source, order, target, order)),
            },
            effort.rounds,
        )
    finally:
        torch.set_num_threads(before)
    sizes = {"read": pages.nbytes, "write": pages.nbytes, "copy": source.nbytes}
    return MemoryRates(*(size / found[name] for name, size in sizes.items()))


def sweep_threads(
    most: int, effort: Effort, memory: WalkedMemory, another: WalkedMemory
) -> tuple[ThreadPoint, ...]:
    """1, 2, 4, ... `most` threads, over pages in one memory and weights in another."""
    rows, context, side = max(effort.batches), max(effort.contexts), max(effort.sides)
    load, shape = Workload("sweep", (context,) * rows), MatrixShape(side, side)
    pages, own = probe_pages(effort, DType.FLOAT16, memory)
    turns = cycle(make_copies(shape, FLOAT16, another).native())
    layers = make_layers(effort.heads, load, len(pages))
    x = torch.randn(1, side)
    counts = sorted({*(1 << i for i in range(most.bit_length())), most})
    samples: dict[tuple[int, str], Sample] = {}
    for count in counts:
        pool = NativePool(count)
        samples[count, "read"] = reading(pool, pages, pages.nbytes)
        samples[count, "attention"] = attending(pool, effort.heads, pages, layers, own)
        samples[count, "linear"] = multiplying(pool, turns, shape, x)
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

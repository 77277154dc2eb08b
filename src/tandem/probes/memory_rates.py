"""The host's memory: reading, writing, copying.

Import this module only if `native.available()`.
"""

from dataclasses import replace

import torch

from tandem.kernels.native_pages import copy_now
from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.effort import Effort
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import timed
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import MemoryRates
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

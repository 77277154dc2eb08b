"""Decode attention of the compiled kernels by rows and context.

Import this module only if `native.available()`.
"""

import torch
from torch import Tensor

from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import BLOCK_SIZE, Workload, make_layers
from tandem.probes.kernel_pages import code_pages, code_shape, float_pages, held_dtype, query_dtype
from tandem.probes.native_samples import attending
from tandem.probes.rounds import median_seconds, most_calls
from tandem.probes.timing import Sample
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import AttentionTimes
from tandem.profiling.surface import Surface
from tandem.spec.kv_type import CodeType, KVType


def measure_attention(
    pool: NativePool, effort: Effort, kv: KVType, memory: WalkedMemory
) -> AttentionTimes:
    """Equal rows over shuffled pages of one type, each call another layer."""
    pages, own = probe_pages(effort, kv, memory)
    samples: dict[tuple[int, int], Sample] = {}
    dtype, most, first = query_dtype(kv), most_calls(effort.rounds), 0
    for rows in effort.batches:
        for context in effort.contexts:
            load = Workload(f"{rows} x {context}", (context,) * rows)
            layers = make_layers(effort.heads, load, len(pages), dtype, most=most, first=first)
            first += len(layers) * load.num_blocks
            samples[rows, context] = attending(pool, effort.heads, pages, layers, own)
    with torch.inference_mode():
        found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[rows, n] for n in effort.contexts) for rows in effort.batches)
    axes = tuple(map(float, effort.batches)), tuple(map(float, effort.contexts))
    return AttentionTimes(str(kv), effort.heads.key_elements, Surface(*axes, times))


def probe_pages(effort: Effort, kv: KVType, memory: WalkedMemory) -> tuple[Tensor, PageShape]:
    """Pages that fill the memory and hold the largest workload, and their shape."""
    largest = max(effort.batches) * -(-max(effort.contexts) // BLOCK_SIZE)
    heads = effort.heads
    if isinstance(kv, CodeType):
        page = code_shape(heads, kv)
        count = max(largest, memory.size_bytes // page.quantized.page_bytes)
        return code_pages(heads, count, kv, memory.take), page
    page_bytes = heads.pages.numel * kv.size_bytes
    count = max(largest, memory.size_bytes // page_bytes)
    return float_pages(heads, count, held_dtype(kv), memory.take), heads.pages

"""What threads and the layout of KV are worth to attention on the CPU, measured on this machine.

Virtual time has neither. LM-Offload's figures 5 and 8 vary threads, Park and Egger's figure 13
compares keys and values in the order in which Scores read them with others that are put into that
order in every step. Both while the link is busy, for which a thread copies within memory: it takes
a core, which the link would not.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from tandem.bench.records import BenchRow
from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pages import append_kv
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.probes.attention_times import probe_pages
from tandem.probes.beside import beside
from tandem.probes.contention import (
    BusyWith,
    attention_work,
    copying_in_memory,
    measure_contention,
)
from tandem.probes.effort import Effort, coarse
from tandem.probes.kernel_cases import HeadShape, LayerCase, Workload, make_layers
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import Contention
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

_ROWS, _CONTEXT = 8, 512
_MEMORY_BYTES = 256 << 20
_GIGA = 1e9
AS_READ, RESHAPED = "as Scores read them", "put into that order in every step"
RESHAPING_COSTS = 1.7
"""Park and Egger, section 5.1: of the time without it, while nothing crosses the link."""


@dataclass(frozen=True, slots=True)
class LayoutTimes:
    """Seconds of a layer's attention, keys and values as they are read or put into that order."""

    as_read_s: float
    reshaped_s: float

    @property
    def ratio(self) -> float:
        """What reshaping costs."""
        return self.reshaped_s / self.as_read_s


@dataclass(frozen=True, slots=True)
class HostMeans:
    """Of attention with a model's heads.

    Attributes:
        threads: by their number, rates of keys and values, of copies, and of both at once.
        alone, beside: layouts, while nothing else runs, and beside copies.
    """

    heads: HeadShape
    threads: dict[int, Contention]
    alone: LayoutTimes
    beside: LayoutTimes


def measure_host_means(model: ModelSpec, report: Callable[[str], None]) -> HostMeans:
    """With as many threads as may be used, and half of them, and so on.

    Raises:
        ConfigError: the compiled kernels are not there, or TANDEM_CPU_ISA cannot be followed.
    """
    heads = HeadShape(model.num_heads, model.num_kv_heads, model.head_dim)
    effort = replace(
        coarse(), heads=heads, batches=(_ROWS,), contexts=(_CONTEXT,), memory_bytes=_MEMORY_BYTES
    )
    copy = copying_in_memory(WalkedMemory(2 * _MEMORY_BYTES))
    memory = WalkedMemory(_MEMORY_BYTES)
    copies = BusyWith("copies within memory", "copies in memory", copy)
    threads: dict[int, Contention] = {}
    for count in _counts(usable_threads()):
        report(f"this host: attention on {count} threads beside copies")
        work = attention_work(NativePool(count), effort, memory)
        (threads[count],) = measure_contention((work,), copies)
    report("this host: layouts of keys and values")
    samples = _layouts(NativePool(max(threads)), effort, memory)

    def times() -> LayoutTimes:
        found = median_seconds(samples, effort.rounds)
        return LayoutTimes(found[AS_READ], found[RESHAPED])

    alone = times()
    return HostMeans(heads, threads, alone, beside(times, copy)())


def _counts(most: int) -> list[int]:
    found = [most]
    while found[-1] > 1:
        found.append(found[-1] // 2)
    return found[::-1]


def _layouts(pool: NativePool, effort: Effort, memory: WalkedMemory) -> dict[str, Sample]:
    """Attention over pages; and the same after tokens, each with all of its heads, as a projection
    gives them, were written to those pages.
    """
    heads = effort.heads
    pages, own = probe_pages(effort, DType.FLOAT16, memory)
    load = Workload("layout", (_CONTEXT,) * _ROWS)
    layers = make_layers(heads, load, len(pages))
    batches = [
        NativeBatch.from_binding(layer.attention, own, heads.heads, pool.num_threads)
        for layer in layers
    ]
    slots = [_slots(layer, own.block_size) for layer in layers]
    tokens = _ROWS * _CONTEXT
    k, v = torch.randn(2, tokens, heads.kv_heads, heads.head_dim).to(torch.float16)

    def attend(i: int) -> None:
        at = i % len(layers)
        paged_attention(pool, layers[at].query, pages, batches[at], heads.scale)

    def reshape_and_attend(i: int) -> None:
        append_kv(pool, pages, k, v, slots[i % len(layers)]).wait()
        attend(i)

    return {
        AS_READ: lambda i: timed(lambda: attend(i)),
        RESHAPED: lambda i: timed(lambda: reshape_and_attend(i)),
    }


def _slots(layer: LayerCase, block_size: int) -> torch.Tensor:
    """int64 [rows * context]; where the rows' tokens lie."""
    block, offset = np.divmod(np.arange(_CONTEXT), block_size)
    table = layer.attention.block_table.astype(np.int64)
    return torch.from_numpy((table[:, block] * block_size + offset).reshape(-1))


def host_rows(means: HostMeans) -> Iterator[BenchRow]:
    """Rows of the common record format."""
    case = f"this host, attention {means.heads}, {_ROWS} x {_CONTEXT} float16"
    best = max(each.work_alone_per_s for each in means.threads.values())
    for count, found in means.threads.items():
        variant = f"measured, {count} threads"
        for metric, rate, bound in (
            ("decode attention", found.work_alone_per_s, best),
            ("decode attention beside copies", found.work_beside_per_s, best),
            (
                "copies beside attention",
                found.load_beside_bytes_per_s,
                found.load_alone_bytes_per_s,
            ),
        ):
            yield BenchRow(case, variant, metric, rate / _GIGA, "GB/s", bound / _GIGA)
    for when, times in (("alone", means.alone), ("beside copies", means.beside)):
        row = f"time over that of keys and values {AS_READ}, {when}"
        variant = f"measured, keys and values {RESHAPED}"
        yield BenchRow(case, variant, row, times.ratio, "ratio", RESHAPING_COSTS)


def describe_host(means: HostMeans) -> Iterator[str]:
    """Lines for people."""
    yield f"  this host, attention {means.heads}, {_ROWS} x {_CONTEXT} float16, measured:"
    for count, found in means.threads.items():
        yield (
            f"    {count} threads: {found.work_alone_per_s / _GIGA:.1f} GB/s, beside copies "
            f"{found.work_beside_per_s / _GIGA:.1f}; copies "
            f"{found.load_beside_bytes_per_s / _GIGA:.1f} of "
            f"{found.load_alone_bytes_per_s / _GIGA:.1f} GB/s"
        )
    yield (
        f"    keys and values {RESHAPED}: {means.alone.ratio:.2f} times as long, beside copies "
        f"{means.beside.ratio:.2f} (Park and Egger: {RESHAPING_COSTS}, and 1.5 to 2)"
    )

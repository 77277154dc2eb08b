"""The CPU's work while something else is busy: what each leaves to the other.

Import this module only if `native.available()`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch

from tandem.kernels.native_linear import dequantize
from tandem.kernels.native_pool import NativePool
from tandem.probes.attention_times import probe_pages
from tandem.probes.beside import beside
from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import Workload, make_layers
from tandem.probes.linear_cases import FLOAT16, MatrixShape, WeightKind, make_copies
from tandem.probes.meter import Meter
from tandem.probes.native_samples import attending, multiplying
from tandem.probes.timing import Sample
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import BoundBy, BusyThing, Contention
from tandem.spec.dtype import DType

_LEAST_S = 0.2

Load = Callable[[], int]
"""Does something, waits for its end, and returns how many bytes that were."""


@dataclass(frozen=True, slots=True)
class CpuWork:
    """What the CPU's threads do.

    Attributes:
        amount: of one call: bytes of keys and values, or FLOPs.
    """

    name: str
    bound_by: BoundBy
    amount: float
    sample: Sample

    def rate(self, others: Sequence[Meter] = ()) -> float:
        """Of that, per second.

        Args:
            others: what goes on beside it; it goes on until each of them has something that counts.
        """
        times: list[float] = []
        for other in others:
            other.open()
        with torch.inference_mode():
            while sum(times) < _LEAST_S or not all(other.counted for other in others):
                times.append(self.sample(len(times)))
        for other in others:
            other.close()
        return self.amount * len(times) / sum(times)


def cpu_works(pool: NativePool, effort: Effort, memory: WalkedMemory) -> tuple[CpuWork, CpuWork]:
    """Decode attention, which memory bounds, and a product of many rows, which cores do."""
    # numbers of the same type in the same memory, since they are not measured in turns
    product = _product(pool, effort, memory)
    return attention_work(pool, effort, memory), product


def attention_work(pool: NativePool, effort: Effort, memory: WalkedMemory) -> CpuWork:
    """Decode attention over float16 pages: the most rows, and the longest."""
    rows, context = max(effort.batches), max(effort.contexts)
    pages, own = probe_pages(effort, DType.FLOAT16, memory)
    layers = make_layers(effort.heads, Workload("contention", (context,) * rows), len(pages))
    kv_bytes = rows * context * effort.heads.key_elements * DType.FLOAT16.size_bytes
    sample = attending(pool, effort.heads, pages, layers, own)
    return CpuWork("decode attention", "memory", kv_bytes, sample)


def copying_in_memory(memory: WalkedMemory) -> Load:
    """One thread copies one half of the memory to the other; its interpreter's lock is free
    meanwhile.
    """
    size_bytes = memory.size_bytes // 2
    both = memory.take((2, size_bytes), torch.uint8)
    both.fill_(1)
    source, target = both.numpy()

    def copy() -> int:
        np.copyto(target, source)
        return size_bytes

    return copy


def dequantizing(effort: Effort, kind: WeightKind, memory: WalkedMemory) -> Load:
    """One thread beside the others turns weights of few bits into float32, which are counted."""
    pool, side = NativePool(1), min(effort.sides)
    turns = cycle(make_copies(MatrixShape(side, side), kind, memory).native())

    def convert() -> int:
        return dequantize(pool, next(turns)).nbytes

    return convert


@dataclass(frozen=True, slots=True)
class BusyWith:
    """What goes on beside the CPU's work.

    Attributes:
        name: in words.
    """

    name: str
    busy: BusyThing
    load: Load


def measure_contention(works: Sequence[CpuWork], other: BusyWith) -> tuple[Contention, ...]:
    """Of each work: both rates, each alone and both at once."""
    other.load()
    return tuple(_measured(work, other) for work in works)


def _measured(work: CpuWork, other: BusyWith) -> Contention:
    load, meter = other.load, Meter(other.load)
    work.sample(0)
    return Contention(
        work.name,
        other.name,
        work.bound_by,
        other.busy,
        work_alone_per_s=work.rate(),
        load_alone_bytes_per_s=load_rate(load),
        work_beside_per_s=beside(lambda: work.rate([meter]), meter)(),
        load_beside_bytes_per_s=meter.rate,
    )


def _product(pool: NativePool, effort: Effort, memory: WalkedMemory) -> CpuWork:
    side, rows = max(effort.sides), max(effort.rows)
    shape = MatrixShape(side, side)
    turns = cycle(make_copies(shape, FLOAT16, memory).native())
    sample = multiplying(pool, turns, shape, torch.randn(rows, side))
    return CpuWork(f"products of {rows} rows", "cores", 2.0 * side * side * rows, sample)


def load_rate(load: Load) -> float:
    """Bytes per second, alone."""
    size, taken_s = 0, 0.0
    while taken_s < _LEAST_S:
        begin = time.perf_counter()
        size += load()
        taken_s += time.perf_counter() - begin
    return size / taken_s

"""Decode attention on the CPU beside its roofline and beside torch, all in one run.

The roofline is the lower of two rates, taken in the same round as what is held against it: reading
memory with the same threads, and the kernel's own loops on data in a core's caches.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from tandem.bench.kernel_codes import CodeCell, measure_codes
from tandem.bench.kernel_variants import dense_layers, inner_loop, torch_forms, torch_naive
from tandem.bench.records import BenchRow
from tandem.kernels import native
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.probes.kernel_cases import (
    HeadShape,
    Workload,
    count_pages,
    loop_case,
    make_layers,
    workloads,
)
from tandem.probes.kernel_pages import float_pages
from tandem.probes.native_samples import attending, reading
from tandem.probes.timing import Sample
from tandem.spec.kv_type import CodeType

SUITE = "kernels"
MAIN_SHAPE = HeadShape(32, 8, 128)
SHAPES = (
    MAIN_SHAPE,
    HeadShape(32, 32, 128),
    HeadShape(64, 8, 128),
    HeadShape(32, 8, 64),
    HeadShape(32, 8, 256),
)
_READ, _LOOP, _NAIVE = "read probe", "cached loop", "torch naive"
_GIGA = 1e9
_BANDWIDTH, _SHARE = "bandwidth", "share of roofline, paired"
_OVER_EVEN = {_BANDWIDTH: "bandwidth over A's", _SHARE: "share of roofline over A's"}


@dataclass(frozen=True, slots=True)
class KernelBench:
    """What to measure.

    Attributes:
        dtypes: of the main shape's pages; other shapes are measured in the first only.
        codes: quantized pages, measured beside float16 ones in the first two workloads.
        threads: of the main shape; other shapes are measured with the most only.
        rounds: samples of each variant; torch's naive form is sampled twice.
    """

    shapes: tuple[HeadShape, ...]
    loads: tuple[Workload, ...]
    dtypes: tuple[torch.dtype, ...]
    codes: tuple[CodeType, ...]
    threads: tuple[int, ...]
    rounds: int


def full() -> KernelBench:
    """All that the targets are about; some minutes."""
    threads = tuple(sorted({1, usable_threads()}))
    dtypes = (torch.float16, torch.bfloat16, torch.float32)
    return KernelBench(SHAPES, workloads(), dtypes, tuple(CodeType), threads, rounds=9)


def quick() -> KernelBench:
    """Under a minute: the main shape in float16."""
    return KernelBench(
        (MAIN_SHAPE,),
        workloads()[:2],
        (torch.float16,),
        tuple(CodeType),
        (usable_threads(),),
        rounds=5,
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    shape: HeadShape
    load: Workload
    dtype: torch.dtype
    threads: int

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.load.name} {self.shape} {dtype} {self.threads} threads"


def cells(config: KernelBench) -> list[Cell]:
    """Every combination that is measured."""
    most = max(config.threads)
    return [
        Cell(shape, load, dtype, threads)
        for shape in config.shapes
        for dtype in (config.dtypes if shape == MAIN_SHAPE else config.dtypes[:1])
        for threads in (config.threads if shape == MAIN_SHAPE else (most,))
        for load in config.loads
    ]


def code_cells(config: KernelBench) -> list[CodeCell]:
    """Every combination with quantized pages that is measured."""
    most = max(config.threads)
    return [
        CodeCell(shape, load, kv, threads)
        for shape in config.shapes
        for kv in config.codes
        for threads in (config.threads if shape == MAIN_SHAPE else (most,))
        for load in config.loads[:2]
    ]


def run_kernels(config: KernelBench, report: Callable[[str], None]) -> list[BenchRow]:
    """Measure every cell; `report` is told of each before it begins.

    Raises:
        ConfigError: the compiled kernels are not there, or TANDEM_CPU_ISA cannot be followed.
    """
    native.choose_isa()
    rows: list[BenchRow] = []
    before = torch.get_num_threads()
    try:
        for cell in cells(config):
            report(str(cell))
            torch.set_num_threads(cell.threads)
            rows += _cell_rows(cell, config.rounds)
        for cell in code_cells(config):
            report(str(cell))
            rows += measure_codes(cell, config.rounds)
    finally:
        torch.set_num_threads(before)
    return rows + _relative_rows(rows)


def _cell_rows(cell: Cell, rounds: int) -> list[BenchRow]:
    pool = NativePool(cell.threads)
    shape, own = cell.shape, cell.shape.pages
    num_pages = count_pages(cell.load, own.numel * cell.dtype.itemsize)
    pages = float_pages(shape, num_pages, cell.dtype)
    layers = make_layers(shape, cell.load, num_pages, cell.dtype)
    dense = dense_layers(shape, cell.load, pages, layers)
    size = sum(cell.load.lengths) * shape.key_elements * cell.dtype.itemsize
    ours = f"tandem {pool.isa}"
    forms = torch_forms(shape, cell.load, dense)
    variants: dict[str, Sample] = {
        _READ: reading(pool, pages, size),
        ours: attending(pool, shape, pages, layers, own),
        **forms,
        _NAIVE: torch_naive(shape, dense),
    }
    few, attention = loop_case(shape, cell.threads)
    loop_pages = float_pages(few, len(attention.positions), cell.dtype)
    loop = inner_loop(pool, few, attention, loop_pages, few.pages)
    loop_key_bytes = few.key_elements * cell.dtype.itemsize
    with torch.inference_mode():
        rates = _measure(variants, lambda: loop() * loop_key_bytes, size, rounds)
    best = max(forms, key=lambda name: median(rates[name]))
    rates["torch best"] = rates[best]
    return _rows(str(cell), ours, rates)


def _measure(
    variants: dict[str, Sample], loop: Callable[[], float], size: int, rounds: int
) -> dict[str, list[float]]:
    """Bytes/s of each variant in each round, in turns, after a warm-up that is thrown away.

    What makes the roofline comes just before what is held against it, and a round begins with a
    loop that does not count: torch's threads may still spin after the call before.
    """
    rates: dict[str, list[float]] = {name: [] for name in (_READ, _LOOP, *variants)}
    for i in range(rounds + 1):
        loop()
        for name in rates:
            if name == _NAIVE and i > 2:
                continue
            rate = loop() if name == _LOOP else size / variants[name](i)
            if i:
                rates[name].append(rate)
    return rates


def _rows(case: str, ours: str, rates: dict[str, list[float]]) -> list[BenchRow]:
    roof = [min(pair) for pair in zip(rates[_READ], rates[_LOOP], strict=True)]
    rows = [
        _row(case, name, _BANDWIDTH, [r / _GIGA for r in rates[name]], "GB/s", median(roof) / _GIGA)
        for name in (ours, "torch best", _NAIVE)
    ]
    rows += [
        _row(case, name, _BANDWIDTH, [r / _GIGA for r in rates[name]], "GB/s", None)
        for name in (_READ, _LOOP)
    ]
    for name in (ours, "torch best"):
        paired = [rate / limit for rate, limit in zip(rates[name], roof, strict=True)]
        rows.append(_row(case, name, _SHARE, paired, "ratio", 1.0))
    speedup = [a / b for a, b in zip(rates[ours], rates["torch best"], strict=True)]
    rows.append(_row(case, ours, "speed over torch best, paired", speedup, "ratio", None))
    return rows


def _row(
    case: str,
    variant: str,
    metric: str,
    samples: Sequence[float],
    unit: str,
    bound: float | None,
) -> BenchRow:
    spread = (min(samples), max(samples))
    return BenchRow(case, variant, metric, median(samples), unit, bound, spread)


def _relative_rows(rows: Sequence[BenchRow]) -> list[BenchRow]:
    """What uneven lengths cost: C over A of the same shape, in bandwidth, and in the share of the
    roofline, which the machine's load at either time disturbs less.
    """
    related: list[BenchRow] = []
    for metric, name in _OVER_EVEN.items():
        found = {r.case: r for r in rows if r.metric == metric and "tandem" in r.variant}
        for case, row in found.items():
            even = found.get("A" + case[1:])
            if case.startswith("C ") and even is not None:
                ratio = row.value / even.value if even.value else math.inf
                spread = (ratio, ratio)
                related.append(BenchRow(case, row.variant, name, ratio, "ratio", 1.0, spread))
    return related

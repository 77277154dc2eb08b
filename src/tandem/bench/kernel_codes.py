"""Decode attention over quantized pages beside float16 ones, in one run."""

from dataclasses import dataclass
from statistics import median

import torch

from tandem.bench.kernel_variants import inner_loop
from tandem.bench.records import BenchRow
from tandem.kernels.native_pool import NativePool
from tandem.probes.kernel_cases import HeadShape, Workload, count_pages, loop_case, make_layers
from tandem.probes.kernel_pages import code_pages, code_shape, float_pages
from tandem.probes.native_samples import attending, reading
from tandem.spec.kv_type import CodeType

_GIGA = 1e9
_HALF_BYTES = 2


@dataclass(frozen=True, slots=True)
class CodeCell:
    """One combination."""

    shape: HeadShape
    load: Workload
    kv: CodeType
    threads: int

    def __str__(self) -> str:
        return f"{self.load.name} {self.shape} {self.kv} {self.threads} threads"

    @property
    def key_bytes(self) -> float:
        """Of one token's keys and values."""
        page = code_shape(self.shape, self.kv).quantized
        return page.page_bytes / page.block_size

    @property
    def half_key_bytes(self) -> int:
        """Of one token's keys and values in float16."""
        return self.shape.key_elements * _HALF_BYTES


def measure_codes(cell: CodeCell, rounds: int) -> list[BenchRow]:
    """The kernel on quantized pages, on float16 ones, and its limits, in turns."""
    pool = NativePool(cell.threads)
    shape, own = cell.shape, code_shape(cell.shape, cell.kv)
    size = int(sum(cell.load.lengths) * cell.key_bytes)
    pages = code_pages(shape, count_pages(cell.load, own.quantized.page_bytes), cell.kv)
    halves = float_pages(
        shape, count_pages(cell.load, shape.pages.numel * _HALF_BYTES), torch.float16
    )
    few, attention = loop_case(shape, cell.threads)
    loop_pages = code_pages(few, len(attention.positions), cell.kv)
    loop = inner_loop(pool, few, attention, loop_pages, code_shape(few, cell.kv))
    few_bytes = cell.key_bytes * few.kv_heads / shape.kv_heads
    read = reading(pool, pages, size)
    ours = attending(pool, shape, pages, make_layers(shape, cell.load, len(pages)), own)
    base = attending(pool, shape, halves, make_layers(shape, cell.load, len(halves)), shape.pages)
    roof: list[float] = []
    rates: list[float] = []
    speedups: list[float] = []
    with torch.inference_mode():
        for i in range(rounds + 1):
            limit = min(size / read(i), loop() * few_bytes)
            taken, half_taken = ours(i), base(i)
            if i:  # the first warms up
                roof.append(limit)
                rates.append(size / taken)
                speedups.append(half_taken / taken)
    return _rows(cell, pool.isa, roof, rates, speedups)


def _rows(
    cell: CodeCell, isa: str, roof: list[float], rates: list[float], speedups: list[float]
) -> list[BenchRow]:
    giga = [rate / _GIGA for rate in rates]
    shares = [rate / limit for rate, limit in zip(rates, roof, strict=True)]
    table = (
        ("bandwidth", giga, "GB/s", median(roof) / _GIGA),
        ("share of roofline, paired", shares, "ratio", 1.0),
        ("tokens/s over float16, paired", speedups, "ratio", cell.half_key_bytes / cell.key_bytes),
    )
    return [
        BenchRow(
            str(cell),
            f"tandem {isa}",
            metric,
            median(samples),
            unit,
            bound,
            (min(samples), max(samples)),
        )
        for metric, samples, unit, bound in table
    ]

"""Linear maps on the CPU beside their roofline and beside torch, all in one run."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tandem.bench.linear_cell import Cell, CellWeights, cell_rows
from tandem.bench.records import BenchRow
from tandem.kernels import native
from tandem.kernels.native_pool import usable_threads
from tandem.probes.linear_cases import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    MatrixShape,
    WeightKind,
    quantized_kind,
)
from tandem.spec.errors import ConfigError

SUITE = "linear"
MAIN_SHAPE = MatrixShape(14336, 4096)
SHAPES = (
    MAIN_SHAPE,
    MatrixShape(4096, 4096),
    MatrixShape(4096, 14336),
    MatrixShape(28672, 4096, gated=True),
    MatrixShape(1024, 1024),
    MatrixShape(1024, 2816),
    MatrixShape(5632, 1024, gated=True),
)
KINDS = (
    FLOAT16,
    BFLOAT16,
    FLOAT32,
    quantized_kind(8, 64),
    quantized_kind(8, 128),
    quantized_kind(4, 64),
)


@dataclass(frozen=True, slots=True)
class LinearBench:
    """What to measure.

    Attributes:
        kinds: of the main shape; other shapes are measured in the first only.
        threads: of the main shape; other shapes are measured with the most only.
        rounds: samples of each variant; two of those that are far slower than the fastest.
        only: cells whose names contain this.
    """

    shapes: tuple[MatrixShape, ...]
    kinds: tuple[WeightKind, ...]
    rows: tuple[int, ...]
    threads: tuple[int, ...]
    rounds: int
    only: str = ""


def full(only: str = "") -> LinearBench:
    """All that the targets are about; a quarter of an hour without `only`."""
    threads = tuple(sorted({1, usable_threads()}))
    return LinearBench(SHAPES, KINDS, (1, 4, 8, 32, 128, 512), threads, rounds=7, only=only)


def quick(only: str = "") -> LinearBench:
    """Under a minute: a square matrix in two kinds."""
    shape = MatrixShape(4096, 4096)
    kinds = (FLOAT16, quantized_kind(8, 64))
    return LinearBench((shape,), kinds, (1, 8, 32, 128), (usable_threads(),), rounds=5, only=only)


def cells(config: LinearBench) -> list[Cell]:
    """Every combination that is measured; those over the same weights one after another."""
    main = config.shapes[0]
    found = [
        Cell(shape, kind, threads, rows)
        for shape in config.shapes
        for kind in (config.kinds if shape == main else config.kinds[:1])
        for threads in (config.threads if shape == main else (max(config.threads),))
        for rows in config.rows
    ]
    return [cell for cell in found if config.only in str(cell)]


def run_linear(config: LinearBench, report: Callable[[str], None]) -> list[BenchRow]:
    """Measure every cell; `report` is told of each before it begins.

    Raises:
        ConfigError: `only` leaves no cell; the compiled kernels are not there, or TANDEM_CPU_ISA
            cannot be followed.
    """
    native.choose_isa()
    if not cells(config):
        raise ConfigError(
            f"no case contains {config.only!r}; cases look like '{Cell(MAIN_SHAPE, FLOAT16, 1, 8)}'"
        )
    rows: list[BenchRow] = []
    before = torch.get_num_threads()
    weights: CellWeights | None = None
    try:
        for cell in cells(config):
            report(str(cell))
            torch.set_num_threads(cell.threads)
            with torch.inference_mode():
                if weights is None or weights.of != (cell.shape, cell.kind):
                    weights = None  # before the next ones take memory
                    weights = CellWeights.make(cell)
                own = cell_rows(cell, weights, config.rounds)
            weights.leave_out_slow(cell, own)
            rows += own
    finally:
        torch.set_num_threads(before)
    return rows

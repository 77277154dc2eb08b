"""Linear maps on the CPU beside their roofline and beside torch, all in one run.

The roofline is the lower of two rates, taken in the same round as what is held against it: reading
the weight's bytes with the same threads, and torch's float32 product of two matrices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from tandem.bench.kernel_variants import timed
from tandem.bench.linear_cases import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    Copies,
    MatrixShape,
    WeightKind,
    make_copies,
    quantized_kind,
)
from tandem.bench.linear_peers import Multiply, torch_forms
from tandem.bench.records import BenchRow, row_of_samples
from tandem.kernels import native
from tandem.kernels.native_linear import Activation, LinearEnd, NativeLinear, linear, linear_into
from tandem.kernels.native_pool import NativePool, usable_threads
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
_READ, _PRODUCT = "read probe", "torch float32 product"
_PROBE_SIZE = 1024
_FEW_ROUNDS = 2
_SLOW = 4.0  # times the fastest: sampled in few rounds
_LEAST_S = 2e-3  # of a sample
_GIGA = 1e9
_ERROR_ROWS = 8
_LEAST_READ = 64 << 20  # bytes that the probe reads

Sample = Callable[[int], float]  # seconds of the n-th call; n rotates over copies


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


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    shape: MatrixShape
    kind: WeightKind
    threads: int
    rows: int

    def __str__(self) -> str:
        return f"linear {self.shape} {self.kind} {self.rows} rows {self.threads} threads"

    @staticmethod
    def example() -> "Cell":
        """For messages."""
        return Cell(MAIN_SHAPE, FLOAT16, 1, 8)


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
        raise ConfigError(f"no case contains {config.only!r}; cases look like '{Cell.example()}'")
    rows: list[BenchRow] = []
    before = torch.get_num_threads()
    weights: _Weights | None = None
    try:
        for cell in cells(config):
            report(str(cell))
            torch.set_num_threads(cell.threads)
            with torch.inference_mode():
                if weights is None or weights.of != (cell.shape, cell.kind):
                    weights = None  # before the next ones take memory
                    weights = _Weights.make(cell)
                rows += _cell_rows(cell, weights, config.rounds)
    finally:
        torch.set_num_threads(before)
    return rows


@dataclass(frozen=True, slots=True)
class _Weights:
    """One shape and kind, as each variant wants it."""

    copies: Copies
    native: list[NativeLinear]
    peers: dict[str, list[Multiply]]

    @staticmethod
    def make(cell: Cell) -> "_Weights":
        copies = make_copies(cell.shape, cell.kind)
        return _Weights(copies, copies.native(), torch_forms(copies))

    @property
    def of(self) -> tuple[MatrixShape, WeightKind]:
        return self.copies.shape, self.copies.kind


def _cell_rows(cell: Cell, weights: _Weights, rounds: int) -> list[BenchRow]:
    pool = NativePool(cell.threads)
    ours = f"tandem {pool.isa}"
    x = torch.randn(cell.rows, cell.shape.inputs)
    size = cell.kind.size_bytes(cell.shape)
    flops = 2 * cell.rows * cell.shape.outputs * cell.shape.inputs
    peers = {f"torch {name}": _calls(forms, x) for name, forms in weights.peers.items()}
    variants = {ours: _tandem(pool, weights.native, cell.shape, x)}
    if cell.kind.rounds_activations:
        variants[_rounded(ours)] = _tandem(
            pool, weights.native, cell.shape, x, int8_activations=True
        )
    own = list(variants)
    variants |= peers
    a, b = torch.randn(2, _PROBE_SIZE, _PROBE_SIZE)
    memory = torch.randint(1 << 30, (max(size, _LEAST_READ) // 8,))
    bounds: dict[str, Callable[[], float]] = {
        _READ: lambda: memory.nbytes / pool.read_seconds(memory) * flops / size,
        _PRODUCT: lambda: 2 * _PROBE_SIZE**3 / timed(lambda: a @ b),
    }
    rates = _measure(variants, bounds, flops, rounds)
    rows = _rows(str(cell), own, list(peers), rates, size / flops)
    return rows + _error_rows(str(cell), weights, own, x, pool)


def _error_rows(
    case: str, weights: "_Weights", own: Sequence[str], x: torch.Tensor, pool: NativePool
) -> list[BenchRow]:
    """How far the sums are from those in float64 over the same weights, where `x` is rounded."""
    if len(own) == 1:
        return []
    few, weight = x[:_ERROR_ROWS], weights.native[0]
    exact = few.double() @ weights.copies.quantized[0].dequantize().double().t()
    rows: list[BenchRow] = []
    for name, rounds in zip(own, (False, True), strict=True):
        error = linear(pool, weight, few, int8_activations=rounds) - exact
        share = float(error.norm() / exact.norm())
        rows.append(BenchRow(case, name, "error over size, rms", share, "ratio"))
    return rows


def _rounded(name: str) -> str:
    return f"{name}, int8 activations"


def _tandem(
    pool: NativePool,
    weights: Sequence[NativeLinear],
    shape: MatrixShape,
    x: torch.Tensor,
    *,
    int8_activations: bool = False,
) -> Sample:
    end, activation, outputs = LinearEnd.STORE, Activation.NONE, shape.outputs
    if shape.gated:
        end, activation, outputs = LinearEnd.GATED, Activation.SILU, shape.outputs // 2
    y = torch.empty(len(x), outputs)

    def multiply(weight: NativeLinear) -> None:
        linear_into(y, pool, weight, x, end, activation, int8_activations=int8_activations)

    return lambda i: timed(lambda: multiply(weights[i % len(weights)]))


def _calls(forms: Sequence[Multiply], x: torch.Tensor) -> Sample:
    return lambda i: timed(lambda: forms[i % len(forms)](x))


def _measure(
    variants: dict[str, Sample],
    bounds: dict[str, Callable[[], float]],
    flops: int,
    rounds: int,
) -> dict[str, list[float]]:
    """FLOP/s of each bound and variant in each round, in turns.

    A first round, thrown away, warms up and finds how many calls make a sample of two
    milliseconds: torch's threads may still spin for a while after a call.
    """
    first = {name: sample(0) for name, sample in variants.items()}
    first = {name: min(first[name], sample(1)) for name, sample in variants.items()}
    fastest = min(first.values())
    rates: dict[str, list[float]] = {name: [] for name in (*bounds, *variants)}
    call = 2
    for i in range(rounds):
        for name, bound in bounds.items():
            rates[name].append(bound())
        for name, sample in variants.items():
            if i >= _FEW_ROUNDS and first[name] > _SLOW * fastest:
                continue
            count = max(1, min(16, round(_LEAST_S / first[name])))
            rates[name].append(flops / median(sample(call + n) for n in range(count)))
            call += count
    return rates


def _rows(
    case: str,
    own: Sequence[str],
    peers: Sequence[str],
    rates: dict[str, list[float]],
    bytes_per_flop: float,
) -> list[BenchRow]:
    roof = [min(pair) for pair in zip(rates[_READ], rates[_PRODUCT], strict=True)]
    giga = {name: [rate / _GIGA for rate in found] for name, found in rates.items()}
    rows = [
        row_of_samples(case, name, "rate", giga[name], "GFLOP/s", median(roof) / _GIGA)
        for name in (*own, *peers)
    ]
    reads = [rate * bytes_per_flop for rate in giga[_READ]]
    rows.append(row_of_samples(case, _READ, "bandwidth", reads, "GB/s"))
    rows.append(row_of_samples(case, _PRODUCT, "rate", giga[_PRODUCT], "GFLOP/s"))
    paired = [rate / limit for rate, limit in zip(rates[own[0]], roof, strict=True)]
    rows.append(row_of_samples(case, own[0], "share of roofline, paired", paired, "ratio", 1.0))
    best = max(peers, key=lambda name: median(rates[name]), default=None)
    if best is not None:
        metric = "speed over torch best, paired"
        for name in own:
            speedup = [a / b for a, b in zip(rates[name], rates[best], strict=False)]
            rows.append(row_of_samples(case, name, metric, speedup, "ratio"))
    return rows

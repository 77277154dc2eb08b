"""One cell of the linear benchmark: all variants of one product in turns.

The roofline is the lower of two rates, taken in the same round as what is held against it: reading
the weight's bytes with the same threads, and torch's float32 product of two matrices.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from statistics import median

import torch

from tandem.bench.linear_peers import Multiply, torch_forms
from tandem.bench.records import BenchRow, row_of_samples
from tandem.devices.host_memory import bulk_zeros
from tandem.kernels.native_linear import NativeLinear, linear
from tandem.kernels.native_pool import NativePool
from tandem.probes.linear_cases import Copies, MatrixShape, WeightKind, make_copies, uncached_bytes
from tandem.probes.native_samples import multiplying
from tandem.probes.timing import Sample, timed

_READ, _PRODUCT = "read probe", "torch float32 product"
_PROBE_SIZE = 1024
_FEW_ROUNDS = 2
_SLOW = 4.0  # times the fastest: sampled in few rounds
_HOPELESS = 50.0  # times the fastest: left out of cells with more rows
_LEAST_S = 2e-3  # of a sample
_GIGA = 1e9
_ERROR_ROWS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    shape: MatrixShape
    kind: WeightKind
    threads: int
    rows: int

    def __str__(self) -> str:
        return f"linear {self.shape} {self.kind} {self.rows} rows {self.threads} threads"


@dataclass(frozen=True, slots=True)
class CellWeights:
    """One shape and kind, as each variant wants it.

    Attributes:
        left_out: threads and names of peers that would take minutes with more rows.
    """

    copies: Copies
    native: list[NativeLinear]
    forms: dict[str, list[Multiply]]
    left_out: set[tuple[int, str]]

    @staticmethod
    def make(cell: Cell) -> "CellWeights":
        """Copies of one weight, and torch's forms of them."""
        copies = make_copies(cell.shape, cell.kind)
        return CellWeights(copies, copies.native(), torch_forms(copies), set())

    def peers(self, threads: int) -> dict[str, list[Multiply]]:
        """Torch's forms that are worth the time."""
        names = {name: f"torch {name}" for name in self.forms}
        return {
            names[name]: calls
            for name, calls in self.forms.items()
            if (threads, names[name]) not in self.left_out
        }

    def leave_out_slow(self, cell: Cell, rows: Sequence[BenchRow]) -> None:
        """What was far slower than the fastest is not asked again with the same threads."""
        rates = {row.variant: row.value for row in rows if row.metric == "rate" and row.bound}
        fastest = max(rates.values())
        self.left_out.update(
            (cell.threads, name) for name, rate in rates.items() if rate * _HOPELESS < fastest
        )

    @property
    def of(self) -> tuple[MatrixShape, WeightKind]:
        """What they are weights of."""
        return self.copies.shape, self.copies.kind


def cell_rows(cell: Cell, weights: CellWeights, rounds: int) -> list[BenchRow]:
    """Rates of the compiled kernels and of torch's forms, their bounds, and errors of rounding."""
    pool = NativePool(cell.threads)
    ours = f"tandem {pool.isa}"
    x = torch.randn(cell.rows, cell.shape.inputs)
    size = cell.kind.size_bytes(cell.shape)
    flops = 2 * cell.rows * cell.shape.outputs * cell.shape.inputs
    peers = {name: _calls(forms, x) for name, forms in weights.peers(cell.threads).items()}
    turns = cycle(weights.native)
    variants = {ours: multiplying(pool, turns, cell.shape, x)}
    if cell.kind.rounds_activations:
        variants[_rounded(ours)] = multiplying(pool, turns, cell.shape, x, int8_activations=True)
    own = list(variants)
    variants |= peers
    a, b = torch.randn(2, _PROBE_SIZE, _PROBE_SIZE)
    memory = bulk_zeros((max(size, uncached_bytes()) // 8,), torch.int64).random_(1 << 30)
    bounds: dict[str, Callable[[], float]] = {
        _READ: lambda: memory.nbytes / pool.read_seconds(memory) * flops / size,
        _PRODUCT: lambda: 2 * _PROBE_SIZE**3 / timed(lambda: a @ b),
    }
    rates = _measure(variants, bounds, flops, rounds, own)
    rows = _rows(str(cell), own, list(peers), rates, size / flops)
    return rows + _error_rows(str(cell), weights, own, x, pool)


def _error_rows(
    case: str, weights: "CellWeights", own: Sequence[str], x: torch.Tensor, pool: NativePool
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


def _calls(forms: Sequence[Multiply], x: torch.Tensor) -> Sample:
    return lambda i: timed(lambda: forms[i % len(forms)](x))


def _measure(
    variants: dict[str, Sample],
    bounds: dict[str, Callable[[], float]],
    flops: int,
    rounds: int,
    own: Sequence[str],
) -> dict[str, list[float]]:
    """FLOP/s of each bound and variant in each round, in turns; of peers that are far slower than
    the fastest, in a few rounds only.

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
            slow = name not in own and first[name] > _SLOW * fastest
            if slow and i >= _FEW_ROUNDS:
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

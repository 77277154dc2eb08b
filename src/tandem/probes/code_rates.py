"""Quantizing weights, and the way back.

Import this module only if `native.available()`.
"""

import torch

from tandem.kernels.native_linear import NativeLinear, dequantize
from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.linear_cases import MatrixShape, WeightKind, make_copies
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.profiling.measurements import CodeRates
from tandem.quant.quantize import quantize_into

_FP32_BYTES = 4


def measure_codes(pool: NativePool, effort: Effort) -> tuple[CodeRates, ...]:
    """Each quantized kind, on a square weight; quantizing is torch's, as when a model is loaded."""
    side = min(effort.sides)
    kinds = [kind for kind in effort.kinds if kind.format is not None]
    samples: dict[tuple[str, str], Sample] = {}
    for kind in kinds:
        samples |= _samples(pool, effort, kind, side)
    found = median_seconds(samples, effort.rounds)
    size = side * side * _FP32_BYTES
    return tuple(
        CodeRates(str(kind), size / found[str(kind), "to"], size / found[str(kind), "from"])
        for kind in kinds
    )


def _samples(
    pool: NativePool, effort: Effort, kind: WeightKind, side: int
) -> dict[tuple[str, str], Sample]:
    shape = MatrixShape(side, side)
    copies = make_copies(shape, kind, effort.memory_bytes)
    plain = torch.randn(side, side)
    target = copies.quantized[0]
    natives: list[NativeLinear] = copies.native()[1:]
    return {
        (str(kind), "to"): lambda _: timed(lambda: quantize_into(target, plain)),
        (str(kind), "from"): lambda i: timed(lambda: dequantize(pool, natives[i % len(natives)])),
    }

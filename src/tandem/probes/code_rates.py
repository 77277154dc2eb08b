"""Quantizing weights, and the way back.

Import this module only if `native.available()`.
"""

from itertools import cycle

import torch

from tandem.kernels.native_linear import dequantize
from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.linear_cases import MatrixShape, WeightKind, make_copies
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import timed
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import CodeRates
from tandem.quant.quantize import quantize_into

_FP32_BYTES = 4


def measure_codes(pool: NativePool, effort: Effort, memory: WalkedMemory) -> tuple[CodeRates, ...]:
    """Each quantized kind, on a square weight; quantizing is torch's, as when a model is loaded."""
    kinds = [kind for kind in effort.kinds if kind.format is not None]
    return tuple(_rates(pool, effort, kind, memory) for kind in kinds)


def _rates(pool: NativePool, effort: Effort, kind: WeightKind, memory: WalkedMemory) -> CodeRates:
    side = min(effort.sides)
    copies = make_copies(MatrixShape(side, side), kind, memory)
    plain, target = torch.randn(side, side), copies.quantized[0]
    turns = cycle(copies.native()[1:])

    def back(_: int) -> float:
        weight = next(turns)
        return timed(lambda: dequantize(pool, weight))

    found = median_seconds(
        {"to": lambda _: timed(lambda: quantize_into(target, plain)), "from": back}, effort.rounds
    )
    size = side * side * _FP32_BYTES
    return CodeRates(str(kind), size / found["to"], size / found["from"])

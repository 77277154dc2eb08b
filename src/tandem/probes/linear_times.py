"""Linear maps of the compiled kernels by size of the weight and rows: a staircase.

Import this module only if `native.available()`.
"""

from itertools import cycle

import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.linear_cases import MatrixShape, WeightKind, make_copies
from tandem.probes.native_samples import multiplying
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.probes.walked_memory import WalkedMemory
from tandem.profiling.measurements import LinearTimes
from tandem.profiling.surface import Surface


def measure_linear(
    pool: NativePool, effort: Effort, kind: WeightKind, memory: WalkedMemory
) -> LinearTimes:
    """Square weights of one kind, each call another copy."""
    samples: dict[tuple[int, int], Sample] = {}
    for side, part in zip(effort.sides, memory.parts(len(effort.sides)), strict=True):
        shape = MatrixShape(side, side)
        turns = cycle(make_copies(shape, kind, part).native())
        for rows in effort.rows:
            samples[side, rows] = multiplying(pool, turns, shape, torch.randn(rows, side))
    found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[side, rows] for rows in effort.rows) for side in effort.sides)
    elements = tuple(float(side * side) for side in effort.sides)
    return LinearTimes(str(kind), Surface(elements, tuple(map(float, effort.rows)), times))

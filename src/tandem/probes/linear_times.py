"""Linear maps of the compiled kernels by size of the weight and rows: a staircase.

Import this module only if `native.available()`.
"""

import torch

from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.linear_cases import MatrixShape, WeightKind, make_copies
from tandem.probes.native_samples import multiplying
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.profiling.measurements import LinearTimes
from tandem.profiling.surface import Surface


def measure_linear(pool: NativePool, effort: Effort, kind: WeightKind) -> LinearTimes:
    """Square weights of one kind, each call another copy."""
    samples: dict[tuple[int, int], Sample] = {}
    for side in effort.sides:
        shape = MatrixShape(side, side)
        weights = make_copies(shape, kind, effort.memory_bytes).native()
        for rows in effort.rows:
            samples[side, rows] = multiplying(pool, weights, shape, torch.randn(rows, side))
    found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[side, rows] for rows in effort.rows) for side in effort.sides)
    elements = tuple(float(side * side) for side in effort.sides)
    return LinearTimes(str(kind), Surface(elements, tuple(map(float, effort.rows)), times))

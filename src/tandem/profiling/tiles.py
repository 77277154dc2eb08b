"""How many rows products compute at a time, found from where measured times jump.

A kernel of products computes its result in tiles; of rows that do not fill the last one, it takes
as long as if they did (NVIDIA's "tile quantization": Matrix Multiplication Background User's Guide,
section "Dimension Quantization Effects"). Where arithmetic is what takes time, times over rows are
stairs then, whose steps are as wide as a tile.
"""

from collections.abc import Sequence
from math import inf, sqrt

from tandem.profiling.measurements import LinearTimes

_TILES = (16, 32, 64, 128)
"""Rows of tiles that kernels have: powers of two, as their threads share them. Larger ones make too
few stairs among the rows that are measured.
"""
_FLAT = 1.1
"""Times one row: below it, reading weights is what takes time."""
_LEAST_POINTS = 5
_CLEARLY = 0.5
"""Of the error of a straight line, what stairs may have at most to be believed."""


def measured_tile(kinds: Sequence[LinearTimes]) -> int | None:
    """Rows of a tile of all these types; None where times show no stairs, or types differ.

    Args:
        kinds: alike in the size of their elements.
    """
    found = {_tile(times) for times in kinds}
    return found.pop() if len(found) == 1 else None


def _tile(times: LinearTimes) -> int | None:
    """By the largest weight, beside which a launch is least."""
    sizes, seconds = times.surface.second, times.surface.seconds[-1]
    points = [(int(n), s) for n, s in zip(sizes, seconds, strict=True) if s > _FLAT * seconds[0]]
    if len(points) < _LEAST_POINTS:
        return None
    straight = _error(points, 1)
    best = min(_TILES, key=lambda tile: _error(points, tile))
    return best if _error(points, best) < _CLEARLY * straight else None


def _error(points: Sequence[tuple[int, float]], tile: int) -> float:
    """Relative, of the best line over whole tiles; root of the mean square."""
    wholes = [-(-rows // tile) * tile for rows, _ in points]
    seconds = [time_s for _, time_s in points]
    middle, middle_s = sum(wholes) / len(points), sum(seconds) / len(points)
    spread = sum((whole - middle) ** 2 for whole in wholes)
    if not spread:
        return inf
    rising = sum((w - middle) * (s - middle_s) for w, s in zip(wholes, seconds, strict=True))
    slope = rising / spread
    line = [middle_s + slope * (whole - middle) for whole in wholes]
    squares = [(s / found - 1) ** 2 for s, found in zip(line, seconds, strict=True)]
    return sqrt(sum(squares) / len(squares))

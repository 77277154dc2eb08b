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
_FLAT = 1.2
"""Times one row: below it, reading weights is what takes time, and activations of many rows."""
_LEAST_POINTS = 5
_CLEARLY = 0.5
"""Of the error of a straight line, what stairs may have at most to be believed."""


def measured_tile(kinds: Sequence[LinearTimes]) -> int | None:
    """Rows of a tile of all these types; None where times show no stairs, or types differ.

    Args:
        kinds: alike in the size of their elements.
    """
    found = {_tile(_rising(_points(times))) for times in kinds}
    return found.pop() if len(found) == 1 else None


def measured_code_tile(kinds: Sequence[LinearTimes], most_rows: int) -> int | None:
    """Likewise of products by codes; not of those whose codes take longer to read than any rows to
    compute.

    Args:
        most_rows: that are multiplied by codes: so few that the tile in which they are no longer
            hidden by reading is often the second and last.
    """
    points = ([(n, s) for n, s in _points(times) if n <= most_rows] for times in kinds)
    found = {tile for each in points if (tile := _tile(each)) is not None}
    return found.pop() if len(found) == 1 else None


def _points(times: LinearTimes) -> list[tuple[int, float]]:
    """Rows and seconds of the largest weight, beside which a launch is least."""
    surface = times.surface
    return [(int(n), s) for n, s in zip(surface.second, surface.seconds[-1], strict=True)]


def _rising(points: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Where it is not reading the weight that takes time."""
    return [(rows, time_s) for rows, time_s in points if time_s > _FLAT * points[0][1]]


def _tile(points: Sequence[tuple[int, float]]) -> int | None:
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

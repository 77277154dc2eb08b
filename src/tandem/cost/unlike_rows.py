"""The least that a stage takes in the mean, in passes of which each has another number of rows.

Time is not convex in rows where few of them read few experts, or are multiplied by codes and many
by weights that are dequantized before: then unlike passes take less than alike ones of the same
mean. Between the numbers of rows from which kernels change (`PreciseStage.changes`) arithmetic
follows a straight line, and what is read lies above the one between both ends, so that the stage
takes no less than the greater of the two. Beneath all of these lies one convex line; no numbers of
rows take less than it says at their mean.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tandem.cost.quantized import PreciseStage
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import CostBreakdown

_Point = tuple[float, float]


class UnlikeRows(NamedTuple):
    """Of many passes.

    Attributes:
        mean: rows. fewest, most: of any pass. at_once: so many at most are computed together; of
            more, the stage is computed several times.
    """

    mean: float
    fewest: int
    most: int
    at_once: int


class LeastStage(NamedTuple):
    """In the mean over all passes.

    Attributes:
        total_s: of the stage. memory_s: of its reads and writes.
    """

    total_s: float
    memory_s: float


def least_stage(
    stage: PreciseStage, rows: UnlikeRows, rates: DeviceRates, share: float = 1.0
) -> LeastStage:
    """No passes take less.

    Args:
        rates: whose tiles are single rows. share: of the work, in as many kernels.
    """
    totals, memory = list[_Point](), list[_Point]()
    for fewest, most in _alike(stage, rows):
        less, more = (stage.cost(n, rates).part(share) for n in (fewest, most))
        totals += _of_alike((fewest, less), (most, more))
        memory += [(fewest, less.memory_s), (most, more.memory_s)]
    if rows.most > rows.at_once:
        for points in totals, memory:
            points.append((rows.most, rows.most * min(y / x for x, y in points)))
    return LeastStage(_beneath(totals, rows.mean), _beneath(memory, rows.mean))


def _alike(stage: PreciseStage, rows: UnlikeRows) -> Iterator[tuple[int, int]]:
    """Numbers of rows, first and last, that are computed by the same kernels."""
    changes = [n for n in stage.changes(rows.at_once) if n >= rows.fewest]
    for last, end in pairwise((rows.fewest - 1, *changes, rows.at_once)):
        yield last + 1, end


def _of_alike(less: tuple[int, CostBreakdown], more: tuple[int, CostBreakdown]) -> Iterator[_Point]:
    """Corners of what they take at least: kernels are as many as of the fewest."""
    (fewest, first), (most, last) = less, more
    launch_s = min(first.launch_s, last.launch_s)
    begin, end = first._replace(launch_s=launch_s), last._replace(launch_s=launch_s)
    yield fewest, begin.total_s
    before_s, after_s = (each.compute_s - each.memory_s for each in (begin, end))
    if before_s * after_s < 0:  # arithmetic and reads cross
        part = before_s / (before_s - after_s)
        crossed = (one + part * (other - one) for one, other in zip(begin, end, strict=True))
        yield fewest + part * (most - fewest), CostBreakdown(*crossed).total_s
    yield most, end.total_s


def _beneath(points: list[_Point], at: float) -> float:
    """The convex line under points in their order, at a place within."""
    hull = list[_Point]()
    for x, y in points:
        while len(hull) > 1 and _is_above(hull[-2], hull[-1], (x, y)):
            hull.pop()
        if hull and hull[-1][0] == x:
            y = min(y, hull.pop()[1])
        hull.append((x, y))
    if at <= hull[0][0]:
        return hull[0][1]
    for (left, low), (right, high) in pairwise(hull):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return hull[-1][1]


def _is_above(first: _Point, second: _Point, third: _Point) -> bool:
    """Whether the second lies on the line between the others, or above."""
    across, along = second[1] - first[1], second[0] - first[0]
    return across * (third[0] - first[0]) >= (third[1] - first[1]) * along

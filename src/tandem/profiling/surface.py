"""Measured times over sizes: exact where measured, linear between, in proportion outside."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Estimate(NamedTuple):
    """A time read off measurements.

    Attributes:
        extrapolated: it lies outside what was measured.
    """

    seconds: float
    extrapolated: bool


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over one size.

    Raises:
        ValueError: sizes that do not ascend from above 0, or times that are not above 0.
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_sizes(self.sizes)
        _check_times(self.seconds, len(self.sizes))

    def at(self, size: float) -> Estimate:
        """The time for `size`, which is above 0."""
        place = _place(self.sizes, size)
        return Estimate(place.between(self.seconds) * place.factor, place.outside)


@dataclass(frozen=True, slots=True)
class Surface:
    """Seconds over two sizes; `a + b x + c y + d x y` between four neighbours, so that work which
    is a product of sizes, beside fixed costs, is met exactly.

    Attributes:
        seconds: by the first size, then by the second.

    Raises:
        ValueError: sizes that do not ascend from above 0, or times that are not above 0.
    """

    first: tuple[float, ...]
    second: tuple[float, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        _check_sizes(self.first)
        _check_sizes(self.second)
        if len(self.seconds) != len(self.first):
            raise ValueError(f"{len(self.seconds)} rows of times for {len(self.first)} sizes")
        for row in self.seconds:
            _check_times(row, len(self.second))

    def at(self, first: float, second: float) -> Estimate:
        """The time for both sizes, which are above 0."""
        x, y = _place(self.first, first), _place(self.second, second)
        seconds = x.between([y.between(row) for row in self.seconds])
        return Estimate(seconds * x.factor * y.factor, x.outside or y.outside)


class _Place(NamedTuple):
    """Where a size lies among those measured: `share` of the way from `place` to the next one.

    Attributes:
        factor: the size over the nearest one measured, where it lies outside.
    """

    place: int
    share: float
    factor: float

    @property
    def outside(self) -> bool:
        return self.factor != 1.0

    def between(self, values: Sequence[float]) -> float:
        low = values[self.place]
        if not self.share:
            return low
        return low + self.share * (values[self.place + 1] - low)


def _place(sizes: Sequence[float], size: float) -> _Place:
    if not size > 0:
        raise ValueError(f"a size must be above 0, not {size}")
    if size <= sizes[0]:
        return _Place(0, 0.0, size / sizes[0])
    if size >= sizes[-1]:
        return _Place(len(sizes) - 1, 0.0, size / sizes[-1])
    index = bisect_right(sizes, size) - 1
    return _Place(index, (size - sizes[index]) / (sizes[index + 1] - sizes[index]), 1.0)


def _check_sizes(sizes: Sequence[float]) -> None:
    ascending = all(a < b for a, b in pairwise(sizes))
    if not sizes or not ascending or sizes[0] <= 0 or not math.isfinite(sizes[-1]):
        raise ValueError("sizes must ascend from above 0")


def _check_times(times: Sequence[float], count: int) -> None:
    if len(times) != count:
        raise ValueError(f"{len(times)} times for {count} sizes")
    if not all(time > 0 and math.isfinite(time) for time in times):
        raise ValueError("times must be finite and above 0")

"""Rows of sweeps of which some have fewer than others: what whole tiles of them are in the mean."""

from math import ceil, exp, floor, lgamma, log, sqrt
from typing import NamedTuple

_DEVIATIONS = 5.0
"""From its mean, beyond which a number of empty places hardly ever is."""


class VaryingRows(NamedTuple):
    """Rows of a linear map in one sweep or another.

    Attributes:
        most: where no place is empty.
        empty: of the places, those without a row, in the mean over sweeps. Requests end
            independently of each other, so that their number is that of a Poisson process.
    """

    most: int
    empty: float = 0.0

    def plus(self, other: "VaryingRows") -> "VaryingRows":
        """Both in the same sweep."""
        return VaryingRows(self.most + other.most, self.empty + other.empty)

    def whole_tiles(self, tile_rows: int) -> float:
        """Rows that are computed in the mean, `tile_rows` at a time."""
        spread = _DEVIATIONS * sqrt(self.empty)
        first = min(self.most, max(0, floor(self.empty - spread)))
        last = min(self.most, ceil(self.empty + spread))
        found, left, chance = 0.0, 1.0, self._chance(first)
        for empty in range(first, last):
            found += chance * (-(-(self.most - empty) // tile_rows))
            left -= chance
            chance *= self.empty / (empty + 1)
        found += max(0.0, left) * (-(-(self.most - last) // tile_rows))
        return tile_rows * found

    def _chance(self, empty: int) -> float:
        """That so many places are empty."""
        if not self.empty:
            return float(not empty)
        return exp(empty * log(self.empty) - self.empty - lgamma(empty + 1))

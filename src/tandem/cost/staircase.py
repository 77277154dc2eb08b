"""Times over a number of rows, known at some numbers and linear between."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class Staircase:
    """Seconds by rows: of products, flat while weights are what is read, then rising.

    Attributes:
        sizes: ascending, from 1 on. seconds: at each of them; beyond the last, in proportion.
    """

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    _known: dict[float, float] = field(
        init=False, repr=False, compare=False, default_factory=lambda: {}
    )

    @staticmethod
    def of(time_s: Callable[[int], float], most: int, tile_rows: int = 1) -> "Staircase":
        """By asking for 1, 2, 3, 4, 6, 8, 12, ... up to `most` rows.

        Args:
            tile_rows: each last row of a tile is asked for as well, and the next one: in between
                times are nearly flat.
        """
        sizes = _sizes(most)
        if tile_rows > 1:
            edges = range(tile_rows, most, tile_rows)
            sizes = tuple(sorted({*sizes, *edges, *(edge + 1 for edge in edges)}))
        return Staircase(sizes, tuple(map(time_s, sizes)))

    def at(self, size: float) -> float:
        """For so many rows; 0 for none. A scheduler asks for the same few in each step."""
        known = self._known.get(size)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[size] = self._between(size)
        return known

    def _between(self, size: float) -> float:
        if size <= 0:
            return 0.0
        place = bisect_left(self.sizes, size)
        if place == 0:
            return self.seconds[0]
        if place == len(self.sizes):
            return self.seconds[-1] * size / self.sizes[-1]
        low, high = self.sizes[place - 1], self.sizes[place]
        below_s, above_s = self.seconds[place - 1], self.seconds[place]
        return below_s + (above_s - below_s) * (size - low) / (high - low)


def _sizes(most: int) -> tuple[int, ...]:
    found = [1]
    power = 2
    while power < most:
        found.append(power)
        if power * 3 // 2 < most and power > 1:
            found.append(power * 3 // 2)
        power *= 2
    if most > 1:
        found.append(most)
    return tuple(found)

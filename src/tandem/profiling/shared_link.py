"""What both directions of a link keep of their speeds at once, from what a profile measured."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tandem.profiling.measurements import AcceleratorMeasurements

APART = 2.0
"""In sum, of directions that share nothing."""
_NOISE = 0.98
"""What keeps so much of its speed is not taken to be slowed down."""


def both_ways(measured: "AcceleratorMeasurements") -> float:
    """The speeds of two large copies, one each way at once, each as a share of its own alone; their
    sum, from 1 (they take turns) to 2 (they share nothing).

    Both are taken to lose alike. The copies were equally large, so that of two unequal directions
    the slower one's copy goes on alone when the other's has ended.
    """
    alone_s = sorted(each.pinned.seconds[-1] for each in (measured.h2d, measured.d2h))
    size = measured.h2d.pinned.sizes[-1]
    both_s = size / min(measured.h2d.both_bytes_per_s, measured.d2h.both_bytes_per_s)
    faster_s, slower_s = alone_s
    kept = 1 / (1 + max(0.0, both_s - slower_s) / faster_s)
    return APART if kept >= _NOISE else max(1.0, 2 * kept)

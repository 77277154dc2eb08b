"""Work that the link and the CPU share: the least time in which both are done with it."""

from collections.abc import Sequence
from typing import NamedTuple

INFINITY = float("inf")


class Levelled(NamedTuple):
    """Work of which any share may be the link's, the rest the CPU's.

    Attributes:
        link_s, cpu_s: for all of it; infinite: none of it may be theirs.
    """

    link_s: float
    cpu_s: float


def least_levelled_s(work: Sequence[Levelled]) -> float:
    """The value of the linear programme over all shares, by its dual: however the time of the link
    and that of the CPU are weighted, each piece of work is where it counts least. Of all weights,
    those count where a piece is as well here as there.
    """
    weights = {0.0, 1.0}
    weights |= {cpu_s / (link_s + cpu_s) for link_s, cpu_s in work if 0 < link_s + cpu_s < INFINITY}
    return max(
        sum(min(_part(weight, link_s), _part(1 - weight, cpu_s)) for link_s, cpu_s in work)
        for weight in weights
    )


def _part(weight: float, seconds: float) -> float:
    return seconds if seconds == INFINITY else weight * seconds

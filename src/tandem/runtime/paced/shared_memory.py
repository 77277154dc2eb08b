"""How the host's work and the emulated copies share the host's memory: as in the planner's queues,
nobody is slowed down until all together ask for more than there is, and then by as much.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from tandem.profiling.measurements import Contention


class Copy(NamedTuple):
    """What moves bytes in the host's memory without the CPU."""

    start_s: float
    end_s: float
    bytes_per_s: float


def speed_beside(pool_bytes_per_s: float, asked_bytes_per_s: float, copied: float) -> float:
    """Of the host's work, relative to alone.

    Args:
        asked_bytes_per_s: by it alone; no more counts than there is.
        copied: bytes per second of others.
    """
    asked = min(pool_bytes_per_s, asked_bytes_per_s)
    return min(1.0, pool_bytes_per_s / (asked + copied))


def end_beside_s(
    start_s: float,
    alone_s: float,
    asked_bytes_per_s: float,
    copies: Sequence[Copy],
    pool_bytes_per_s: float,
) -> float:
    """When the host's work ends that takes `alone_s` where nothing is copied."""
    edges = sorted({at for copy in copies for at in copy[:2] if at > start_s})
    now_s, left_s = start_s, alone_s
    for edge_s in (*edges, inf):
        copied = sum(copy.bytes_per_s for copy in copies if copy.start_s <= now_s < copy.end_s)
        speed = speed_beside(pool_bytes_per_s, asked_bytes_per_s, copied)
        if left_s <= speed * (edge_s - now_s):
            break
        left_s -= speed * (edge_s - now_s)
        now_s = edge_s
    return now_s + left_s / speed


def emulated_contention(found: Contention, pool_bytes_per_s: float) -> Contention:
    """What a probe would have found beside the emulated link, which moves nothing: the CPU's work
    is slowed down as `end_beside_s` slows it in a run. The probe's products are of so many rows
    that they read next to nothing, and are not.

    The link is said to lose as much, although emulated copies keep their times: of both rates
    together the planner finds the pool, and would find it larger than the emulator's is.
    """
    if found.busy != "link":
        return found
    speed = 1.0
    if found.bound_by == "memory":
        asked, load = found.work_alone_per_s, found.load_alone_bytes_per_s
        speed = speed_beside(pool_bytes_per_s, asked, load)
    return replace(
        found,
        work_beside_per_s=speed * found.work_alone_per_s,
        load_beside_bytes_per_s=speed * found.load_alone_bytes_per_s,
    )

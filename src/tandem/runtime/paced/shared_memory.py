"""How the host's work and the emulated copies share the host's memory: as in the planner's queues,
nobody is slowed down until all together ask for more than there is, and then all by as much.
"""

from collections.abc import Sequence
from dataclasses import replace

from tandem.profiling.measurements import Contention, ThreadPoint, ThreadRates


def speed_of_all(pool_bytes_per_s: float, asked_bytes_per_s: float) -> float:
    """Of everyone who moves bytes, relative to alone.

    Args:
        asked_bytes_per_s: by all together, of each no more than there is.
    """
    if asked_bytes_per_s <= pool_bytes_per_s:
        return 1.0
    return pool_bytes_per_s / asked_bytes_per_s


def emulated_contention(found: Contention, pool_bytes_per_s: float) -> Contention:
    """What a probe would have found beside the emulated link, which moves nothing: both are slowed
    down as in a run (`FluidMemory`). The probe's products are of so many rows that they read next
    to nothing, and are not.
    """
    if found.busy != "link":
        return found
    speed = 1.0
    if found.bound_by == "memory":
        link = found.load_alone_bytes_per_s
        speed = _speed_beside(found.work_alone_per_s, link, pool_bytes_per_s)
    return replace(
        found,
        work_beside_per_s=speed * found.work_alone_per_s,
        load_beside_bytes_per_s=speed * found.load_alone_bytes_per_s,
    )


def emulated_sweep(
    found: Sequence[ThreadPoint], contention: Sequence[Contention], pool_bytes_per_s: float
) -> tuple[ThreadPoint, ...]:
    """Likewise of each number of threads: reading, attention, and products of one row all read."""
    link = next(each.load_alone_bytes_per_s for each in contention if each.busy == "link")

    def beside(rate: float) -> float:
        return rate * _speed_beside(rate, link, pool_bytes_per_s)

    return tuple(
        replace(
            point,
            beside_link=ThreadRates(
                read_bytes_per_s=beside(point.alone.read_bytes_per_s),
                attention_bytes_per_s=beside(point.alone.attention_bytes_per_s),
                linear_bytes_per_s=beside(point.alone.linear_bytes_per_s),
            ),
        )
        for point in found
    )


def _speed_beside(work: float, link: float, pool: float) -> float:
    """Of work that reads so many bytes per second alone, and the link, both at once."""
    return speed_of_all(pool, min(pool, work) + min(pool, link))

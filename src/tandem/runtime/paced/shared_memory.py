"""How the host's work and the emulated copies share the host's memory: as in the planner's queues,
nobody is slowed down until all together ask for more than there is, and then all by as much.
"""

from dataclasses import replace

from tandem.profiling.measurements import Contention


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
        asked = min(pool_bytes_per_s, found.work_alone_per_s)
        load = min(pool_bytes_per_s, found.load_alone_bytes_per_s)
        speed = speed_of_all(pool_bytes_per_s, asked + load)
    return replace(
        found,
        work_beside_per_s=speed * found.work_alone_per_s,
        load_beside_bytes_per_s=speed * found.load_alone_bytes_per_s,
    )

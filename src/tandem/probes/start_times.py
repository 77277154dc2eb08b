"""How long the CPU's threads take to begin, and to be known to have ended.

Import this module only if `native.available()`.
"""

from statistics import median

from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.pool_trips import submit
from tandem.profiling.measurements import StartTimes

_SPIN_S = 1e-3  # longer than any gap between two trips
_NS = 1e-9


def measure_starts(threads: int, effort: Effort) -> StartTimes:
    """Round trips of nothing, to threads that spin."""
    spinning = NativePool(threads, spin_s=_SPIN_S)
    return StartTimes(median(submit(spinning).end_ns for _ in range(effort.trips)) * _NS)

"""How long the CPU's threads take to begin, and to be known to have ended.

Import this module only if `native.available()`.
"""

from statistics import median

from tandem.kernels.native_pool import NativePool
from tandem.probes.effort import Effort
from tandem.probes.pool_trips import submit, submit_to_sleepers
from tandem.profiling.measurements import StartTimes

_SPIN_S = 1e-3  # longer than any gap between two trips
_NS = 1e-9
_ASLEEP_SHARE = 10  # each takes longer


def measure_starts(threads: int, effort: Effort) -> StartTimes:
    """Round trips of nothing, to threads that spin and to threads that sleep."""
    spinning, default = NativePool(threads, spin_s=_SPIN_S), NativePool(threads)
    awake = [submit(spinning).end_ns for _ in range(effort.trips)]
    asleep = [
        submit_to_sleepers(default).end_ns for _ in range(max(1, effort.trips // _ASLEEP_SHARE))
    ]
    return StartTimes(median(awake) * _NS, median(asleep) * _NS)

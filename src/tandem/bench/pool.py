"""What it takes to start work on the native pool from Python, and to hear of its end.

The bound of a start is the time in which one spinning thread can tell another anything, and of a
round trip twice that. A thread of the pool that has found nothing to do for a while sleeps; then
the system's waking comes on top.
"""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from tandem.bench.records import BenchRow, row_of_samples
from tandem.kernels import _native, native
from tandem.kernels.native_pool import NativePool, usable_threads
from tandem.probes.pool_trips import Trip, raise_signal, submit, submit_to_sleepers

SUITE = "pool"
_SPIN_S = 1e-3  # longer than any gap between two rounds, so that threads are found spinning
_MICRO = 1e-3  # of nanoseconds


@dataclass(frozen=True, slots=True)
class PoolBench:
    """What to measure: `rounds` of each case, a tenth of them where threads sleep."""

    threads: tuple[int, ...]
    rounds: int


def full() -> PoolBench:
    """One thread beside Python's, and as many as may be used."""
    return PoolBench(tuple(sorted({1, usable_threads()})), rounds=5000)


def quick() -> PoolBench:
    """A second."""
    return PoolBench((1,), rounds=1000)


def run_pool(config: PoolBench, report: Callable[[str], None]) -> list[BenchRow]:
    """Measure each case; `report` is told of each before it begins.

    Raises:
        ConfigError: the compiled kernels are not there, or TANDEM_CPU_ISA cannot be followed.
    """
    native.choose_isa()
    rows: list[BenchRow] = []
    for threads in config.threads:
        spinning, default = NativePool(threads, spin_s=_SPIN_S), NativePool(threads)
        for case, pool, measure, rounds in (
            ("submitted", spinning, submit, config.rounds),
            ("waits for a signal", spinning, raise_signal, config.rounds),
            ("submitted to sleeping threads", default, submit_to_sleepers, config.rounds // 10),
        ):
            name = f"{case}, {threads} threads"
            report(name)
            rows += _case_rows(name, pool, measure, rounds)
    return rows


def _case_rows(
    case: str, pool: NativePool, measure: Callable[[NativePool], Trip], rounds: int
) -> list[BenchRow]:
    bare = [ns * _MICRO for ns in _native.spin_round_trips(rounds)]
    trips = [measure(pool) for _ in range(rounds)]
    bound, name = median(bare), f"tandem {pool.isa}"
    starts = [trip.start_ns * _MICRO for trip in trips]
    ends = [trip.end_ns * _MICRO for trip in trips]
    return [
        row_of_samples(case, name, "to its start", starts, "us", bound),
        row_of_samples(case, name, "round trip", ends, "us", 2 * bound),
        row_of_samples(case, "bare spin", "to its start", bare, "us"),
    ]

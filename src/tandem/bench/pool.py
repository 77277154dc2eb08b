"""What it takes to start work on the native pool from Python, and to hear of its end.

The bound of a start is the time in which one spinning thread can tell another anything, and of a
round trip twice that. A thread of the pool that has found nothing to do for a while sleeps; then
the system's waking comes on top.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from tandem.bench.records import BenchRow, row_of_samples
from tandem.kernels import _native, native
from tandem.kernels.native_pool import NativePool, Signal, usable_threads

SUITE = "pool"
_SPIN_S = 1e-3  # longer than any gap between two rounds, so that threads are found spinning
_GAP_NS = 20_000  # in which the pool's threads come to rest after the round before
_ASLEEP_S = 500e-6  # well beyond the pool's own spinning
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
            ("submitted", spinning, _submit, config.rounds),
            ("waits for a signal", spinning, _raise_signal, config.rounds),
            ("submitted to sleeping threads", default, _submit_to_sleepers, config.rounds // 10),
        ):
            name = f"{case}, {threads} threads"
            report(name)
            rows += _case_rows(name, pool, measure, rounds)
    return rows


@dataclass(frozen=True, slots=True)
class Trip:
    """Nanoseconds from the submission, or the signal, to the start, and to the known end."""

    start_ns: int
    end_ns: int


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


def _submit(pool: NativePool) -> Trip:
    task, end = _native.nothing(pool.handle), Signal()
    _pass_time(_GAP_NS)
    begin_ns = time.monotonic_ns()
    task.submit((), (end, 1))
    end.wait(1)
    return _trip(task, begin_ns)


def _submit_to_sleepers(pool: NativePool) -> Trip:
    Signal().wait(1, _ASLEEP_S)
    return _submit(pool)


def _raise_signal(pool: NativePool) -> Trip:
    task, gate, end = _native.nothing(pool.handle), Signal(), Signal()
    task.submit([(gate, 1)], (end, 1))
    _pass_time(_GAP_NS)
    begin_ns = time.monotonic_ns()
    gate.set(1)
    end.wait(1)
    return _trip(task, begin_ns)


def _trip(task: _native.Task, begin_ns: int) -> Trip:
    end_ns = time.monotonic_ns()
    task.wait()
    return Trip(task.start_ns - begin_ns, end_ns - begin_ns)


def _pass_time(duration_ns: int) -> None:
    """Busy, as a sleep of microseconds would take many times as long."""
    end_ns = time.monotonic_ns() + duration_ns
    while time.monotonic_ns() < end_ns:
        pass

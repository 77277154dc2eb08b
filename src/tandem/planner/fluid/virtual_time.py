"""A steady state's sweep in virtual time: sweeps submitted ahead, run to the last one's end, or
until all that follow would take as long.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tandem.planner import native
from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.native_sweeps import native_repeated, native_steady
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.queues import ACCEL, CPU, D2H, DISK, H2D, WEIGHTS, Span
from tandem.planner.fluid.sweep_ends import Ends, Shared, repeated_ends, steady_ends
from tandem.profiling.shared_link import APART

_WARM_UP_LOADS = 6
"""Slots are filled in turn, so that their fill depends on some loads before."""
_SHORT = 50
"""Groups of a sweep through a few layers."""
_MOST_SWEEPS = 8
"""Timed, of those that are all alike; two are enough nearly always, three in what else was seen."""


@dataclass(frozen=True, slots=True)
class SweepTime:
    """One sweep of many alike.

    Attributes:
        period_s: from one sweep's end to the next one's.
        accelerator_s, cpu_s, h2d_s, d2h_s: how long each is busy in it; h2d counts copies and
            loads.
        dram_bytes: moved in the host's memory.
        disk_s: how long the disk is busy in it.
    """

    period_s: float
    accelerator_s: float
    cpu_s: float
    h2d_s: float
    d2h_s: float
    dram_bytes: float
    disk_s: float = 0.0


def _first_begun(schedule: Schedule) -> int:
    """Place in a first sweep from which on it brings the queues into the state that they keep: its
    last quarter, and more if that has too few loads or reads. All of a short one. Its last group
    on the accelerator is not left out.
    """
    count = len(schedule.groups)
    first = count * 3 // 4 if count > _SHORT else 0
    for queue in (WEIGHTS, DISK):
        groups = schedule.by_queue[queue]
        if groups:
            first = min(first, groups[-min(len(groups), _WARM_UP_LOADS)])
    return min(first, schedule.by_queue[ACCEL][-1])


def steady_sweep(
    sweeps: Sequence[PricedSweep],
    dram_bytes_per_s: float,
    on_span: Callable[[Span], None] | None = None,
    cycle: int = 1,
    both_ways: float = APART,
) -> SweepTime:
    """Runs the sweeps one after the other, each submitted ahead; the last one is the result.

    Args:
        sweeps: more than `cycle`; the first ones bring the queues into the state that they keep.
        cycle: how many follow each other again and again; the result is the mean of the last ones.
        on_span: told of each group that ends up to the last sweep's end on the accelerator; its
            submission's label is the sweep's number.
        both_ways: see `FluidQueues`.
    """
    first, shared = _first_begun(sweeps[0].schedule), Shared(dram_bytes_per_s, both_ways)
    if on_span is None and native.available():
        return _between(native_steady(sweeps, first, cycle, shared), cycle)
    return _between(steady_ends(sweeps, first, cycle, shared, on_span), cycle)


def repeated_sweep(
    sweep: PricedSweep,
    dram_bytes_per_s: float,
    most_sweeps: int = _MOST_SWEEPS,
    both_ways: float = APART,
) -> SweepTime:
    """Of a sweep that only ever follows itself, without cohorts.

    Each is submitted when the one before the one before has ended. When one ends with the queues as
    the one before left them, all that follow take as long: it is the result. Before, sweeps may be
    shorter than many can be: as long as loads and reads last that were there when the first began.

    Args:
        most_sweeps: timed; if none has left the queues as the one before, the last one's is taken.
        both_ways: see `FluidQueues`.
    """
    ends = native_repeated if native.available() else repeated_ends
    shared = Shared(dram_bytes_per_s, both_ways)
    return _between(ends(sweep, _first_begun(sweep.schedule), most_sweeps, shared), 1)


def _between(ends: Ends, cycle: int) -> SweepTime:
    """The mean of so many sweeps."""
    begin, end = ends
    period_s, *busy, dram_bytes = ((b - a) / cycle for a, b in zip(begin, end, strict=True))
    return SweepTime(
        period_s=period_s,
        accelerator_s=busy[ACCEL],
        cpu_s=busy[CPU],
        h2d_s=busy[H2D],
        d2h_s=busy[D2H],
        dram_bytes=dram_bytes,
        disk_s=busy[DISK],
    )

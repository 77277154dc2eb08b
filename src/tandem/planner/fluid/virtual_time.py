"""A steady state's sweep in virtual time: sweeps submitted ahead, run to the last one's end, or
until all that follow would take as long.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tandem.planner.demand import Demand
from tandem.planner.fluid.groups import OpCounts, Schedule
from tandem.planner.fluid.queues import (
    ACCEL,
    CPU,
    D2H,
    DISK,
    H2D,
    WEIGHTS,
    FluidQueues,
    Join,
    Place,
    Span,
    Submission,
    Work,
)
from tandem.profiling.shared_link import APART

_WARM_UP_LOADS = 6
"""Slots are filled in turn, so that their fill depends on some loads before."""
_SHORT = 50
"""Groups of a sweep through a few layers."""
_MOST_SWEEPS = 8
"""Timed, of those that are all alike; two are enough nearly always, three in what else was seen."""
_SAME = 1e-9
"""Relative to a sweep's time."""


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


@dataclass(frozen=True, slots=True)
class PricedSweep:
    """A schedule and what its operations ask for, by `Schedule.ops`.

    Attributes:
        cohorts: by lane, which one it is of: it waits for its own attention, from the sweep in
            which it took part before and from this one. Empty: joins wait for all that the CPU was
            given in sweeps before.
    """

    schedule: Schedule
    demands: tuple[Demand, ...]
    cohorts: tuple[int, ...] = ()


def _warm_up(schedule: Schedule) -> int:
    """Place in a first sweep from which on it brings the queues into the state that they keep: its
    last quarter, and more if that has too few loads or reads. All of a short one.
    """
    count = len(schedule.groups)
    first = count * 3 // 4 if count > _SHORT else 0
    for queue in (WEIGHTS, DISK):
        groups = schedule.by_queue[queue]
        if groups:
            first = min(first, groups[-min(len(groups), _WARM_UP_LOADS)])
    return first


def group_works(schedule: Schedule, demands: Sequence[Demand]) -> list[Work]:
    """What each group asks for: the sum of its operations, their mean rate of the host's memory."""
    works = [_work(ops, demands) for ops in schedule.costs]
    return [works[number] for number in schedule.cost_of]


def _work(ops: OpCounts, demands: Sequence[Demand]) -> Work:
    alone_s = size = 0.0
    for op, times in ops:
        demand = demands[op]
        alone_s += times * demand.alone_s
        size += times * demand.alone_s * demand.dram_bytes_per_s
    return Work(alone_s, size / alone_s if alone_s else 0.0, demands[ops[0][0]].link_share)


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
    queues = FluidQueues(dram_bytes_per_s, on_span, both_ways=both_ways)
    lasts: dict[int, int] = {}
    attended: dict[int, int] = {}
    priced: dict[int, list[Work]] = {}  # of those that are the same object
    for number, sweep in enumerate(sweeps):
        last = sweep.schedule.by_queue[ACCEL][-1]
        works = priced.get(id(sweep))
        if works is None:
            works = priced[id(sweep)] = group_works(sweep.schedule, sweep.demands)
        submission = Submission(
            sweep.schedule,
            lambda _, works=works: works,
            joins=_joins(sweep, queues.submitted[CPU], attended),
            reported=frozenset({last}),
            label=number,
        )
        lasts[id(submission)] = last
        queues.submit(submission, 0 if number else min(last, _warm_up(sweep.schedule)))
    totals: list[_Totals] = []
    while len(totals) < len(sweeps):
        ended = queues.advance()
        assert ended, "the sweeps wait for each other"
        for submission, group, _ in ended:
            if group == lasts[id(submission)]:
                totals.append(_totals(queues))
    return _between(totals[-1 - cycle], totals[-1], cycle)


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
    queues = FluidQueues(dram_bytes_per_s, both_ways=both_ways)
    schedule, works = sweep.schedule, group_works(sweep.schedule, sweep.demands)
    last = schedule.by_queue[ACCEL][-1]

    def submit(first: int = 0) -> None:
        submission = Submission(schedule, lambda _: works, reported=frozenset({last}))
        queues.submit(submission, first)

    submit(min(last, _warm_up(schedule)))
    submit()
    before = _run_to(queues, last)
    place = queues.place
    timed = 0
    while True:
        submit()
        timed += 1
        now, was = _run_to(queues, last), place
        found, place = _between(before, now, 1), queues.place
        if _is_same(place, was, found.period_s) or timed == most_sweeps:
            return found
        before = now


_Totals = tuple[float, ...]
"""Time, how long each queue has been busy, bytes moved in the host's memory."""


def _run_to(queues: FluidQueues, last: int) -> _Totals:
    """The end of the first of the sweeps under way; last: its group that ends it."""
    while True:
        ended = queues.advance()
        assert ended, "the sweeps wait for each other"
        if any(group == last for _, group, _ in ended):
            return _totals(queues)


def _is_same(place: Place, other: Place, period_s: float) -> bool:
    close = (
        abs(a - b) <= _SAME * period_s for a, b in zip(place.left_s, other.left_s, strict=True)
    )
    return place.ahead == other.ahead and all(close)


def _totals(queues: FluidQueues) -> _Totals:
    return (queues.now_s, *queues.busy_s, queues.dram_bytes)


def _between(begin: _Totals, end: _Totals, cycle: int) -> SweepTime:
    """The mean of so many sweeps."""
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


def _joins(sweep: PricedSweep, base: int, attended: dict[int, int]) -> Mapping[int, Join]:
    """What a cohort's joins wait for, group by group.

    Args:
        base: groups that the CPU's queue was given before.
        attended: of each cohort, how many of those must have ended for its last attention to be
            there; kept up to date.
    """
    joins = dict[int, Join]()
    for index in sweep.schedule.cohorts if sweep.cohorts else ():
        group = sweep.schedule.groups[index]
        if group.joins is not None:
            cohort = sweep.cohorts[group.joins]
            joins[index] = Join(group.joins, attended.get(cohort, 0), None)
        if group.raises is not None:
            attended[sweep.cohorts[group.raises]] = base + group.place
    return joins

"""Sweeps one after the other by the queues of Python: what the compiled ones are compared with, to
the bit, and what runs where nothing could be compiled, or somebody wants spans.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tandem.planner.fluid.priced_sweep import PricedSweep, group_works
from tandem.planner.fluid.queues import ACCEL, CPU, FluidQueues, Join, Place, Span, Submission, Work

SAME = 1e-9
"""Relative to a sweep's time: by how much queues may differ that are as one before left them."""
Totals = tuple[float, ...]
"""Time, how long each queue has been busy, bytes moved in the host's memory."""
Ends = tuple[Totals, Totals]
"""At the ends of two sweeps, between which the result lies."""


class Shared(NamedTuple):
    """What queues share; as of `FluidQueues`."""

    dram_bytes_per_s: float
    both_ways: float


def steady_ends(
    sweeps: Sequence[PricedSweep],
    first: int,
    cycle: int,
    shared: Shared,
    on_span: Callable[[Span], None] | None = None,
) -> Ends:
    """Of sweeps that are all submitted ahead, the last one and that before the last `cycle`.

    Args:
        first: place of the first sweep's first group that is not done yet.
        on_span: as of `FluidQueues`; a submission's label is its sweep's number.
    """
    queues = FluidQueues(shared.dram_bytes_per_s, on_span, both_ways=shared.both_ways)
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
        queues.submit(submission, 0 if number else first)
    totals: list[Totals] = []
    while len(totals) < len(sweeps):
        ended = queues.advance()
        assert ended, "the sweeps wait for each other"
        for submission, group, _ in ended:
            if group == lasts[id(submission)]:
                totals.append(_totals(queues))
    return totals[-1 - cycle], totals[-1]


def repeated_ends(sweep: PricedSweep, first: int, most_sweeps: int, shared: Shared) -> Ends:
    """Of a sweep that only ever follows itself, the last two: until one leaves the queues as the
    one before, or so many were timed.
    """
    queues = FluidQueues(shared.dram_bytes_per_s, both_ways=shared.both_ways)
    schedule, works = sweep.schedule, group_works(sweep.schedule, sweep.demands)
    last = schedule.by_queue[ACCEL][-1]

    def submit(first: int = 0) -> None:
        submission = Submission(schedule, lambda _: works, reported=frozenset({last}))
        queues.submit(submission, first)

    submit(first)
    submit()
    before = _run_to(queues, last)
    place = queues.place
    timed = 0
    while True:
        submit()
        timed += 1
        now, was = _run_to(queues, last), place
        period_s, place = now[0] - before[0], queues.place
        if _is_same(place, was, period_s) or timed == most_sweeps:
            return before, now
        before = now


def _run_to(queues: FluidQueues, last: int) -> Totals:
    """The end of the first of the sweeps under way; last: its group that ends it."""
    while True:
        ended = queues.advance()
        assert ended, "the sweeps wait for each other"
        if any(group == last for _, group, _ in ended):
            return _totals(queues)


def _is_same(place: Place, other: Place, period_s: float) -> bool:
    close = (abs(a - b) <= SAME * period_s for a, b in zip(place.left_s, other.left_s, strict=True))
    return place.ahead == other.ahead and all(close)


def _totals(queues: FluidQueues) -> Totals:
    return (queues.now_s, *queues.busy_s, queues.dram_bytes)


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

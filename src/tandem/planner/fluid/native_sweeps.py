"""Steady sweeps that the compiled queues run (`native/planner/sweep_queues.cpp`)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tandem.planner.fluid.groups import Schedule
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.sweep_ends import SAME, Ends, Shared
from tandem.planner.native import loops

if TYPE_CHECKING:
    from tandem.planner import _loops


def native_steady(sweeps: Sequence[PricedSweep], first: int, cycle: int, shared: Shared) -> Ends:
    """What `steady_ends` gives, of the compiled queues, which must be there."""
    assert loops is not None
    those = [(_native_schedule(each.schedule), each.demands, each.cohorts) for each in sweeps]
    before, after = loops.steady_sweep(those, first, cycle, *shared)
    return tuple(before), tuple(after)


def native_repeated(sweep: PricedSweep, first: int, most_sweeps: int, shared: Shared) -> Ends:
    """What `repeated_ends` gives, likewise."""
    assert loops is not None
    schedule = _native_schedule(sweep.schedule)
    before, after = loops.repeated_sweep(schedule, sweep.demands, first, most_sweeps, SAME, *shared)
    return tuple(before), tuple(after)


def _native_schedule(schedule: Schedule) -> "_loops.Schedule":
    """Made once of each."""
    assert loops is not None
    if schedule.native is None:
        groups = ((place, schedule.groups[place]) for place in schedule.cohorts)
        cohorts = [(place, each.place, each.joins, each.raises) for place, each in groups]
        made = loops.Schedule(
            schedule.by_queue, schedule.waits, schedule.costs, schedule.cost_of, cohorts
        )
        object.__setattr__(schedule, "native", made)  # the dataclass is frozen
        return made
    return schedule.native

"""A schedule and what its operations ask for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tandem.planner.demand import Demand
from tandem.planner.fluid.groups import OpCounts, Schedule
from tandem.planner.fluid.queues import Work


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


def group_works(schedule: Schedule, demands: Sequence[Demand]) -> list[Work]:
    """What each group asks for: the sum of its operations, their mean rate of the host's memory."""
    works = sums_of(schedule.costs, demands)
    return [works[number] for number in schedule.cost_of]


def sums_of(costs: Iterable[OpCounts], demands: Sequence[Demand]) -> list[Work]:
    """What sums of operations ask for, each by its places in `demands`."""
    return [_work(ops, demands) for ops in costs]


def _work(ops: OpCounts, demands: Sequence[Demand]) -> Work:
    alone_s = size = 0.0
    for op, times in ops:
        demand = demands[op]
        alone_s += times * demand.alone_s
        size += times * demand.alone_s * demand.dram_bytes_per_s
    return Work(alone_s, size / alone_s if alone_s else 0.0, demands[ops[0][0]].link_share)

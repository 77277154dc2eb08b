"""Programs on compiled queues (`native/planner/program_queues.cpp`), to the bit as on Python's."""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from tandem.plan.program import EventKind
from tandem.planner.demand import Demand
from tandem.planner.fluid.groups import Group
from tandem.planner.native import loops
from tandem.profiling.shared_link import APART
from tandem.simulator.costs import ProgramCosts
from tandem.simulator.flying import Flying
from tandem.simulator.program_queues import GroupEnded, without_refused

if TYPE_CHECKING:
    from tandem.planner import _loops

    _Priced = tuple[_loops.Schedule, Sequence[Demand]]


class _Telling(IntEnum):
    """As in `sweep_schedule.hpp`."""

    NEVER = 0
    ONCE_LEFT_OUT = 1
    ALWAYS = 2


class NativeQueues:
    """Compiled `FluidQueues` for programs, in which all layers are gone through: those that are
    alike are not worth leaving out.

    A join that happened, and after which the same cohort joins again in the same program, is not
    reported by itself: nothing can be decided by it (ADR 0085).

    Args:
        each: report it nevertheless.
    """

    def __init__(self, costs: ProgramCosts, dram_bytes_per_s: float, *, each: bool = False) -> None:
        assert loops is not None
        self._costs, self._each = costs, each
        self._queues = loops.ProgramQueues(dram_bytes_per_s, APART)
        self._under_way: dict[int, Flying] = {}

    @property
    def now_s(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.now_s

    @property
    def busy_s(self) -> Sequence[float]:
        """See `ProgramQueues`."""
        return self._queues.busy_s

    @property
    def dram_bytes(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.dram_bytes

    @property
    def hidden_s(self) -> float:
        """See `ProgramQueues`."""
        return self._queues.hidden_s

    def submit(self, flying: Flying, not_before_s: float) -> None:
        """See `ProgramQueues`."""
        lanes: list[tuple[int, int, bool]] = []
        if flying.slots:
            shapes = flying.template.lanes
            lanes = [
                (slot.cohort_id, slot.cohort_signal, shape.guarded)
                for slot, shape in zip(flying.slots, shapes, strict=True)
            ]
        schedule, demands = self._native(flying, flying.left_out)
        number = self._queues.submit(schedule, demands, not_before_s, lanes, flying.max_wait_s)
        flying.number = number
        self._under_way[number] = flying

    def advance(self, until_s: float) -> list[GroupEnded]:
        """See `ProgramQueues`."""
        under_way = self._under_way
        return [
            GroupEnded(under_way.pop(number) if complete else under_way[number], group, complete)
            for number, group, complete in self._queues.advance(until_s, self._price)
        ]

    def release(self, cohort_id: int) -> None:
        """See `ProgramQueues`."""
        self._queues.release(cohort_id)

    def _price(self, number: int, left_out: Sequence[int]) -> "_Priced":
        """A program without lanes that are left out; they are not sampled either."""
        flying = self._under_way[number]
        flying.left_out = frozenset(left_out)
        also = without_refused(flying)
        if also is not None:
            sampling, lanes = also
            self._queues.reprice(sampling.number, *self._native(sampling, lanes))
        return self._native(flying, flying.left_out)

    def _native(self, flying: Flying, left_out: frozenset[int]) -> "_Priced":
        """Of each shape, the schedule is handed over once."""
        assert loops is not None
        schedule = flying.schedule
        priced, demands = self._costs.priced(schedule, flying.load, left_out)
        if priced.native is None:
            groups = ((place, schedule.groups[place]) for place in schedule.cohorts)
            priced.native = loops.Schedule(
                schedule.by_queue,
                schedule.waits,
                priced.costs,
                priced.cost_of,
                [(place, each.place, each.joins, each.raises) for place, each in groups],
                self._telling(flying),
            )
        return priced.native, demands

    def _telling(self, flying: Flying) -> list[int]:
        lanes = flying.template.lanes
        followed = set[int | None]() if self._each else {lane.after for lane in lanes}
        return [int(_told(group, followed)) for group in flying.schedule.groups]


def _told(group: Group, followed: set[int | None]) -> _Telling:
    if group.event is None:
        return _Telling.NEVER
    kind, lanes = group.event
    if kind is EventKind.LANE_ADVANCED and followed.issuperset(lanes):
        return _Telling.ONCE_LEFT_OUT
    return _Telling.ALWAYS

"""Programs prepared for virtual time: operations that run back to back are one group."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tandem.plan.program import EventKind, ProgramOp, Queue

if TYPE_CHECKING:
    from tandem.planner import _loops

QUEUES = tuple(Queue)
QUEUE_INDEX = {queue: index for index, queue in enumerate(QUEUES)}
OpCounts = tuple[tuple[int, int], ...]


class Group(NamedTuple):
    """Operations of one queue that nothing else can come between or wait inside.

    Attributes:
        queue: index into QUEUES. place: on its queue within the schedule, from 1.
        ops: (index into the schedule's list of operations, how often).
        waits: (queue, value): that queue has finished so many groups since the program's begin; 0
            and below count back from its end.
        joins: lane whose cohort it waits for. raises: lane whose cohort's attention ends with it.
        event: what its end means to the scheduler, and of which lanes.
    """

    queue: int
    place: int
    ops: OpCounts
    waits: tuple[tuple[int, int], ...]
    joins: int | None = None
    raises: int | None = None
    event: tuple[EventKind, tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    """One program's operations, or those of several that follow each other.

    Attributes:
        ops: different operations; layers alike share one.
        groups: in an order that is a topological one.
        by_queue: places in `groups` of those on each queue.
        costs, cost_of: different sums of operations, and by group which of them it is.
        waits: of each group. joining: places of groups that wait for a cohort.
        events: places of groups that mean something to the scheduler. cohorts: of those that a
            cohort joins or leaves with.
        native: what the compiled loops made of it, if they have seen it.
    """

    ops: tuple[ProgramOp, ...]
    groups: tuple[Group, ...]
    by_queue: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    costs: tuple[OpCounts, ...] = field(init=False, repr=False, compare=False)
    cost_of: tuple[int, ...] = field(init=False, repr=False, compare=False)
    waits: tuple[tuple[tuple[int, int], ...], ...] = field(init=False, repr=False, compare=False)
    joining: frozenset[int] = field(init=False, repr=False, compare=False)
    events: frozenset[int] = field(init=False, repr=False, compare=False)
    cohorts: tuple[int, ...] = field(init=False, repr=False, compare=False)
    native: "_loops.Schedule | None" = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        by_queue: list[list[int]] = [[] for _ in QUEUES]
        numbers: dict[OpCounts, int] = {}
        cost_of: list[int] = []
        events, joining, cohorts = list[int](), list[int](), list[int]()
        for place, (queue, _, ops, _, joins, raises, event) in enumerate(self.groups):
            by_queue[queue].append(place)
            cost_of.append(numbers.setdefault(ops, len(numbers)))
            if event is not None:
                events.append(place)
            if joins is not None:
                joining.append(place)
            if joins is not None or raises is not None:
                cohorts.append(place)
        put = object.__setattr__  # the dataclass is frozen
        put(self, "by_queue", tuple(map(tuple, by_queue)))
        put(self, "costs", tuple(numbers))
        put(self, "cost_of", tuple(cost_of))
        put(self, "waits", tuple([group.waits for group in self.groups]))
        put(self, "joining", frozenset(joining))
        put(self, "events", frozenset(events))
        put(self, "cohorts", tuple(cohorts))

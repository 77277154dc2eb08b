"""Operations in a topological order become groups, part by part, so that parts can recur."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tandem.plan.program import EventKind, OpKind, Part, ProgramOp, Queue
from tandem.planner.fluid.groups import QUEUE_INDEX, QUEUES, Group, OpCounts, Schedule

_GROUPED = tuple(QUEUE_INDEX[queue] for queue in (Queue.ACCEL, Queue.CPU))
"""Queues whose operations wait for others seldom; elsewhere each is a group of its own."""


@dataclass(slots=True)
class Segment:
    """What one part of a program adds to one group.

    Attributes:
        queue: index into QUEUES.
        continues: it goes on with the queue's last group, if nothing awaits that.
        ops: how often, by the number among the known operations.
        waits: (queue, value), as of a group, but counted from the part's begin.
        ends: something awaits its last operation, or has to be told of it.
        joins, raises, event: as of a group.
    """

    queue: int
    continues: bool
    ops: dict[int, int]
    waits: list[tuple[int, int]]
    ends: bool = False
    joins: int | None = None
    raises: int | None = None
    event: tuple[EventKind, tuple[int, ...]] | None = None


class Fragment(NamedTuple):
    """One part of a program.

    Attributes:
        resumes: queues whose last group may go on when the part begins.
    """

    segments: tuple[Segment, ...]
    resumes: tuple[int, ...]


class Operations:
    """Numbers operations that cost the same alike.

    Args:
        kind_of: of an operation's layer, what its price depends on.
    """

    def __init__(self, kind_of: Callable[[ProgramOp], object]) -> None:
        self._kind_of = kind_of
        self._numbers: dict[tuple[object, ...], int] = {}
        self.known: list[ProgramOp] = []

    def number(self, op: ProgramOp) -> int:
        """Of `op` among those known."""
        pages = op.ordinal if op.part is Part.PAGES else 0
        key = (op.kind, op.queue, op.part, op.lanes, op.tier, self._kind_of(op), pages)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.known)
            self.known.append(op)
        return number


def layer_kind(windows: tuple[int, ...], dense: Collection[int]) -> Callable[[ProgramOp], object]:
    """What the price of a sweep's operation depends on.

    Args:
        windows: of each layer of the model; attention costs more where more is seen.
        dense: in a model with experts, layers without, whose stages cost less.
    """
    without = frozenset(dense)

    def kind_of(op: ProgramOp) -> object:
        if op.kind is OpKind.ATTEND:
            return windows[op.layer]
        return op.kind is OpKind.STAGE and op.layer in without

    return kind_of


def grouped(
    ops: Sequence[ProgramOp], windows: tuple[int, ...], dense: Collection[int] = ()
) -> Schedule:
    """A sweep's operations in a topological order as groups; arguments as of `layer_kind`."""
    return grouped_by(ops, layer_kind(windows, dense))


def grouped_by(ops: Sequence[ProgramOp], kind_of: Callable[[ProgramOp], object]) -> Schedule:
    """Operations in a topological order as groups.

    Args:
        kind_of: of an operation's layer, what its price depends on.
    """
    operations = Operations(kind_of)
    schedule = assemble(fragments([ops], operations), operations)
    assert schedule is not None, "the only part resumes nothing"
    return schedule


# --- parts of a program ---------------------------------------------------------------------------


def fragments(parts: Sequence[Sequence[ProgramOp]], operations: Operations) -> list[Fragment]:
    """Of the parts of one program, which follow each other."""
    ops = [op for part in parts for op in part]
    awaited: set[tuple[Queue, int]] = {wait for op in ops for wait in op.waits}
    awaited |= {(op.queue, op.ordinal) for op in {op.queue: op for op in ops}.values()}
    cutter = _Cutter(operations, awaited)
    return [cutter.cut(part) for part in parts]


class _Cutter:
    """Cuts a program's parts into segments, one part after the other."""

    def __init__(self, operations: Operations, awaited: Collection[tuple[Queue, int]]) -> None:
        self._operations, self._awaited = operations, awaited
        self._counts = [0] * len(QUEUES)
        self._goes_on = [False] * len(QUEUES)
        self._place_of: dict[tuple[Queue, int], int] = {}

    def cut(self, part: Sequence[ProgramOp]) -> Fragment:
        """The next part."""
        base = tuple(self._counts)
        resumes = tuple(queue for queue in _GROUPED if self._goes_on[queue])
        found: list[Segment] = []
        latest: dict[int, Segment] = {}
        # of sweeps there are tens of thousands of operations: each is taken apart once
        for op in part:
            own = op.queue
            queue, waits, alone = QUEUE_INDEX[own], list[tuple[int, int]](), False
            for wait in op.waits:
                alone = alone or wait.queue is not own
                if wait.ordinal <= 0 or wait.queue is not own:
                    awaited = QUEUE_INDEX[wait.queue]
                    value = wait.ordinal if wait.ordinal <= 0 else self._place_of[wait]
                    waits.append((awaited, value - base[awaited]))
            continues = queue in _GROUPED and not alone
            goes_on = continues and self._goes_on[queue]
            segment = latest.get(queue) if goes_on else None
            if segment is None:
                segment = latest[queue] = Segment(queue, continues, {}, [])
                found.append(segment)
                self._counts[queue] += 0 if goes_on else 1
            segment.waits += waits
            self._add(segment, op)
        return Fragment(tuple(found), resumes)

    def _add(self, segment: Segment, op: ProgramOp) -> None:
        queue, at = segment.queue, (op.queue, op.ordinal)
        number = self._operations.number(op)
        segment.ops[number] = segment.ops.get(number, 0) + 1
        if segment.joins is None:
            segment.joins = op.joins
        if segment.raises is None:
            segment.raises = op.raises
        event = op.event
        segment.event = None if event is None else (event, op.lanes)
        segment.ends = event is not None or at in self._awaited
        self._place_of[at] = self._counts[queue]
        self._goes_on[queue] = queue in _GROUPED and not segment.ends


# --- groups of parts ------------------------------------------------------------------------------


def assemble(parts: Iterable[Fragment], operations: Operations) -> Schedule | None:
    """Parts that follow each other; None if some part was cut where other groups went on."""
    counts, going = [0] * len(QUEUES), list[int | None]([None] * len(QUEUES))
    places: dict[int, int] = {}  # of operations in the schedule, by their numbers
    known: dict[int, OpCounts] = {}  # of segments, most of which recur
    joined: dict[tuple[OpCounts, OpCounts], OpCounts] = {}
    groups: list[Group] = []
    for part in parts:
        if tuple(queue for queue in _GROUPED if going[queue] is not None) != part.resumes:
            return None
        base = counts.copy()
        for segment in part.segments:
            ops = known.get(id(segment))
            if ops is None:
                ops = known[id(segment)] = tuple(
                    [
                        (places.setdefault(number, len(places)), times)
                        for number, times in segment.ops.items()
                    ]
                )
            waits: tuple[tuple[int, int], ...] = ()
            if segment.waits:
                waits = tuple([(queue, base[queue] + value) for queue, value in segment.waits])
            queue = segment.queue
            at = going[queue] if segment.continues else None
            if at is None:
                counts[queue] += 1
                at, place = len(groups), counts[queue]
                joins, raises = segment.joins, segment.raises
                groups.append(Group(queue, place, ops, waits, joins, raises, segment.event))
            else:
                groups[at] = _joined(groups[at], segment, waits, ops, joined)
            going[queue] = None if segment.ends or queue not in _GROUPED else at
    made = tuple(operations.known[number] for number in places)
    return Schedule(made, tuple(groups))


def _joined(
    group: Group,
    segment: Segment,
    waits: tuple[tuple[int, int], ...],
    ops: OpCounts,
    known: dict[tuple[OpCounts, OpCounts], OpCounts],
) -> Group:
    """A group with one more segment.

    Args:
        known: sums of operations.
    """
    both = known.get((group.ops, ops))
    if both is None:
        counts = dict(group.ops)
        for place, times in ops:
            counts[place] = counts.get(place, 0) + times
        both = known[group.ops, ops] = tuple(counts.items())
    joins = segment.joins if group.joins is None else group.joins
    raises = segment.raises if group.raises is None else group.raises
    return Group(group.queue, group.place, both, group.waits + waits, joins, raises, segment.event)

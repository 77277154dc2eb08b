"""Programs prepared for virtual time: operations that run back to back become one group."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.plan.program import EventKind, LaneShape, OpKind, Part, ProgramOp, Queue, SignalRef
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sampling_template, sweep_template
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.reads_in_place import with_reads_in_place
from tandem.spec.model import ModelSpec

QUEUES = tuple(Queue)
_QUEUE_INDEX = {queue: index for index, queue in enumerate(QUEUES)}
OpCounts = tuple[tuple[int, int], ...]
_GROUPED = (Queue.ACCEL, Queue.CPU)
"""Queues whose operations wait for others seldom; elsewhere each is a group of its own."""


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

    def __post_init__(self) -> None:
        by_queue: list[list[int]] = [[] for _ in QUEUES]
        numbers: dict[OpCounts, int] = {}
        cost_of: list[int] = []
        events, joining, cohorts = list[int](), list[int](), list[int]()
        for place, group in enumerate(self.groups):
            by_queue[group.queue].append(place)
            cost_of.append(numbers.setdefault(group.ops, len(numbers)))
            if group.event is not None:
                events.append(place)
            if group.joins is not None:
                joining.append(place)
            if group.joins is not None or group.raises is not None:
                cohorts.append(place)
        put = object.__setattr__  # the dataclass is frozen
        put(self, "by_queue", tuple(map(tuple, by_queue)))
        put(self, "costs", tuple(numbers))
        put(self, "cost_of", tuple(cost_of))
        put(self, "waits", tuple(group.waits for group in self.groups))
        put(self, "joining", frozenset(joining))
        put(self, "events", frozenset(events))
        put(self, "cohorts", tuple(cohorts))


class SweepCounts(NamedTuple):
    """Of a sweep: layers that the CPU computes, by window, in how many runs, and whether whole;
    layers that are loaded, of those the ones whose MLP alone is, and those that are read from disk.
    """

    by_window: tuple[tuple[int, int], ...]
    runs: int
    whole: bool
    loads: int
    mlp_loads: int
    reads: int


def count_layers(layers: SweepLayers, windows: tuple[int, ...]) -> SweepCounts:
    """Of a sweep's layers, by what they cost.

    Args:
        windows: of each layer of the model.
    """
    on_cpu = Counter(windows[layer] for layer in layers.on_cpu or layers.mlp_on_cpu)
    runs = len(set(layers.on_cpu) - {layer + 1 for layer in layers.on_cpu})
    loaded = layers.loaded
    # as many as there are slots stay in them
    loads = len(loaded) if len(loaded) > layers.streamed.slots else 0
    mlp_loads = len(set(loaded) & set(layers.streamed.mlps)) if loads else 0
    reads = len(layers.streamed.on_disk) if loads or not layers.streamed.layers else 0
    return SweepCounts(tuple(on_cpu.items()), runs, bool(layers.on_cpu), loads, mlp_loads, reads)


class Schedules:
    """Schedules of one model; each is made once, whatever the machine."""

    def __init__(
        self, num_layers: int, windows: tuple[int, ...], dense: Collection[int] = ()
    ) -> None:
        self._num_layers, self._windows, self._dense = num_layers, windows, dense
        self._made: dict[tuple[tuple[LaneShape, ...], SweepLayers], Schedule] = {}
        self._layers: dict[tuple[Elsewhere, bool], tuple[SweepLayers, SweepCounts]] = {}

    def layers(self, elsewhere: Elsewhere, *, prompts: bool) -> tuple[SweepLayers, SweepCounts]:
        """What a sweep does with layers elsewhere, and what of it the bound depends on.

        Args:
            prompts: whether it reads any.
        """
        key = elsewhere, prompts and elsewhere.lent > 0  # else it makes no difference
        found = self._layers.get(key)
        if found is None:
            layers = elsewhere.sweep(self._num_layers, self._dense, prompts=prompts)
            found = self._layers[key] = layers, count_layers(layers, self._windows)
        return found

    @staticmethod
    def of_model(model: ModelSpec) -> "Schedules":
        """For a model."""
        return Schedules(model.num_layers, model.layer_windows, model.dense_layers)

    def of(self, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule:
        """One sweep of these lanes, with these layers streamed or on the CPU."""
        key = (lanes, layers)
        if key not in self._made:
            ops = sweep_operations(self._num_layers, lanes, layers)
            self._made[key] = grouped(_alike(ops, lanes), self._windows, self._dense)
        return self._made[key]


def schedule_each(num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers) -> Schedule:
    """The same with every operation a group of its own, and none taken for another."""
    ops = tuple(_alike(sweep_operations(num_layers, lanes, layers), lanes))
    places = {(op.queue, op.ordinal): op.ordinal for op in ops}
    groups = [
        Group(
            _QUEUE_INDEX[op.queue],
            op.ordinal,
            ((index, 1),),
            tuple(_waits(op, places)),
            op.joins,
            op.raises,
        )
        for index, op in enumerate(ops)
    ]
    return Schedule(ops, tuple(groups))


def sweep_operations(
    num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers
) -> list[ProgramOp]:
    """A sweep's operations and its sampling's, in one order of ordinals per queue."""
    sweep = sweep_template(num_layers, lanes, layers)
    counts = dict(sweep.counts)
    finished = tuple(i for i, lane in enumerate(lanes) if lane.head and _ends(lane, num_layers))
    ops = list(sweep.ops)
    if not layers.streamed.layers:
        ops = with_reads_in_place(ops, layers.streamed.on_disk)
    for op in sampling_template(1).ops if finished else ():
        waits = tuple(SignalRef(w.queue, counts[w.queue] + w.ordinal) for w in op.waits)
        ordinal = counts.get(op.queue, 0) + op.ordinal
        ops.append(_moved(op, finished, ordinal, waits))
    return ops


def _ends(lane: LaneShape, num_layers: int) -> bool:
    """Whether it comes to the end of its rows' tokens."""
    return not lane.suspends or lane.cursor == num_layers - 1


def _alike(ops: list[ProgramOp], lanes: tuple[LaneShape, ...]) -> list[ProgramOp]:
    """With all lanes of a cohort taken for one, the second: they are the same rows."""
    if not any(lane.after is not None for lane in lanes):
        return ops
    return [op._replace(lanes=tuple(min(lane, 1) for lane in op.lanes)) for op in ops]


def _moved(
    op: ProgramOp, lanes: tuple[int, ...], ordinal: int, waits: tuple[SignalRef, ...]
) -> ProgramOp:
    return ProgramOp(
        op.kind, op.queue, op.part, lanes, op.layer, ordinal, waits, op.reads, op.writes
    )


def grouped(
    ops: Sequence[ProgramOp], windows: tuple[int, ...], dense: Collection[int] = ()
) -> Schedule:
    """Operations in a topological order as groups.

    Args:
        windows: of each layer of the model; attention costs more where more is seen.
        dense: in a model with experts, layers without, whose stages cost less.
    """
    without = frozenset(dense)

    def kind_of(op: ProgramOp) -> object:
        if op.kind is OpKind.ATTEND:
            return windows[op.layer]
        return op.kind is OpKind.STAGE and op.layer in without

    return grouped_by(ops, kind_of)


def grouped_by(ops: Sequence[ProgramOp], kind_of: Callable[[ProgramOp], object]) -> Schedule:
    """Operations in a topological order as groups.

    Args:
        kind_of: of an operation's layer, what its price depends on.
    """
    awaited: set[tuple[Queue, int]] = {wait for op in ops for wait in op.waits}
    awaited |= {(op.queue, op.ordinal) for op in {op.queue: op for op in ops}.values()}
    place_of: dict[tuple[Queue, int], int] = {}
    counts = dict.fromkeys(Queue, 0)
    lists: list[tuple[int, list[ProgramOp]]] = []
    open_groups: dict[Queue, list[ProgramOp]] = {}
    for op in ops:
        queue = op.queue
        group = open_groups.get(queue)
        if group is None or (op.waits and any(wait.queue is not queue for wait in op.waits)):
            counts[queue] += 1
            group = list[ProgramOp]()
            lists.append((counts[queue], group))
            if queue in _GROUPED:
                open_groups[queue] = group
        group.append(op)
        at = queue, op.ordinal
        place_of[at] = counts[queue]
        if op.event is not None or at in awaited:
            open_groups.pop(queue, None)
    unique = _Unique(kind_of)
    groups = [_group(members, place, unique, place_of) for place, members in lists]
    return Schedule(tuple(unique.ops), tuple(groups))


def _group(
    members: Sequence[ProgramOp],
    place: int,
    unique: "_Unique",
    place_of: Mapping[tuple[Queue, int], int],
) -> Group:
    last = members[-1]
    ops: dict[int, int] = {}
    waits: list[tuple[int, int]] = []
    joins = raises = None
    for op in members:
        index = unique.index(op)
        ops[index] = ops.get(index, 0) + 1
        if op.waits:
            waits += _waits(op, place_of)
        joins = op.joins if joins is None else joins
        raises = op.raises if raises is None else raises
    event = None if last.event is None else (last.event, last.lanes)
    index = _QUEUE_INDEX[last.queue]
    return Group(index, place, tuple(ops.items()), tuple(waits), joins, raises, event)


def _waits(op: ProgramOp, place_of: Mapping[tuple[Queue, int], int]) -> Iterator[tuple[int, int]]:
    for wait in op.waits:
        if wait.ordinal <= 0:
            yield _QUEUE_INDEX[wait.queue], wait.ordinal
        elif wait.queue is not op.queue:
            yield _QUEUE_INDEX[wait.queue], place_of[wait]


class _Unique:
    """Numbers operations that cost the same alike."""

    def __init__(self, kind_of: Callable[[ProgramOp], object]) -> None:
        self._kind_of = kind_of
        self._index: dict[tuple[object, ...], int] = {}
        self.ops: list[ProgramOp] = []

    def index(self, op: ProgramOp) -> int:
        """Of `op` among the different ones."""
        pages = op.ordinal if op.part is Part.PAGES else 0
        key = (op.kind, op.queue, op.part, op.lanes, op.tier, self._kind_of(op), pages)
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.ops)
            self.ops.append(op)
        return index

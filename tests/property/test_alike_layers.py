"""Layers that are gone through once for many leave every moment and every sum as they are."""

from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from tandem.planner.fluid.alike import alike_groups
from tandem.planner.fluid.groups import QUEUES, Group, Schedule
from tandem.planner.fluid.queues import (
    ACCEL,
    CPU,
    D2H,
    DISK,
    H2D,
    WEIGHTS,
    FluidQueues,
    Submission,
    Work,
)

LAYERS = 12
DRAM_BYTES_PER_S = 10.0


@dataclass(frozen=True)
class Layer:
    """Groups of a layer, each with a queue and those of the layer that it waits for.

    The first is the accelerator's, and waits for the last group of the layer before.
    """

    queues: tuple[int, ...]
    waits: tuple[frozenset[int], ...]


RIDING = Layer(
    (ACCEL, ACCEL, D2H, CPU, H2D),
    (frozenset(), frozenset(), frozenset({0}), frozenset({2}), frozenset({3})),
)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    others = draw(st.lists(st.sampled_from([ACCEL, H2D, D2H, CPU, WEIGHTS, DISK]), max_size=5))
    waits = [frozenset(draw(st.sets(st.integers(0, i), max_size=2))) for i in range(len(others))]
    return Layer((ACCEL, *others), (frozenset(), *waits))


def schedule_of(layer: Layer, before: list[int], after: list[int]) -> Schedule:
    """Some groups that wait for nothing, the layers, some groups."""
    groups: list[Group] = []
    places = [0] * len(QUEUES)

    def add(queue: int, cost: int, waits: list[Group]) -> Group:
        places[queue] += 1
        others = tuple((other.queue, other.place) for other in waits if other.queue != queue)
        group = Group(queue, places[queue], ((cost, 1),), others)
        groups.append(group)
        return group

    for queue in before:
        add(queue, len(groups), [])
    last: list[Group] = []
    for _ in range(LAYERS):
        made: list[Group] = []
        for place, queue in enumerate(layer.queues):
            waits = [made[i] for i in layer.waits[place]] if place else last
            made.append(add(queue, 100 + place, waits))
        last = made[-1:]
    for number, queue in enumerate(after):
        add(queue, 200 + number, [])
    return Schedule((), tuple(groups))


def submission(schedule: Schedule, works: dict[int, Work], *, alike: bool) -> Submission:
    """Of groups that cost the same by their number; the first and the last one are reported."""
    every = [works[group.ops[0][0]] for group in schedule.groups]
    return Submission(
        schedule,
        lambda _: every,
        reported=frozenset({0, len(every) - 1}),
        alike=alike_groups(schedule) if alike else None,
    )


WORKS = st.builds(
    Work, st.floats(1e-3, 2.0), st.sampled_from([0.0, 3.0, 8.0]), st.sampled_from([0.0, 0.5, 1.0])
)
ANY_QUEUES = st.lists(st.integers(0, len(QUEUES) - 1), max_size=3)


def moments(
    schedules: list[Schedule], works: dict[int, Work], pieces: list[float], *, alike: bool
) -> tuple[list[object], int]:
    """What is reported and when, and all sums then; and how many steps of time that took.

    Each schedule is submitted when the one before it has one group to go.
    """
    queues = FluidQueues(DRAM_BYTES_PER_S)
    found: list[object] = []
    steps = 0
    original = queues._start

    def counted() -> float:
        nonlocal steps
        steps += 1
        return original()

    queues._start = counted
    left = [submission(each, works, alike=alike) for each in schedules]
    total = 2 * len(left)
    queues.submit(left.pop(0))
    until_s, turn = 0.0, 0
    while len(found) < total:
        ended = queues.advance(until_s)
        sums = (*queues.busy_s, queues.dram_bytes, queues.hidden_s)
        found += [(queues.now_s, end.group, end.complete, sums) for end in ended]
        if ended and left:
            queues.submit(left.pop(0))
        if not ended:
            until_s += pieces[turn % len(pieces)]
            turn += 1
    return found, steps


@given(
    layer=layers(),
    before=ANY_QUEUES,
    after=ANY_QUEUES,
    works=st.lists(WORKS, min_size=12, max_size=12),
    pieces=st.lists(st.floats(0.5, 30.0), min_size=1, max_size=4),
    sweeps=st.integers(1, 3),
)
@example(RIDING, [ACCEL], [ACCEL], [Work(0.25, 3.0, 0.5)] * 12, [1e3], 3)
@example(RIDING, [], [CPU], [Work(0.1, 8.0, 1.0)] * 12, [0.7], 2)
def test_layers_that_are_not_gone_through_leave_all_as_it_is(
    layer: Layer,
    before: list[int],
    after: list[int],
    works: list[Work],
    pieces: list[float],
    sweeps: int,
) -> None:
    numbers = [*range(3), *(100 + i for i in range(6)), *(200 + i for i in range(3))]
    priced = dict(zip(numbers, works, strict=True))
    schedule = schedule_of(layer, before, [*after, ACCEL][:3])
    through, _ = moments([schedule] * sweeps, priced, pieces, alike=False)
    repeated, _ = moments([schedule] * sweeps, priced, pieces, alike=True)
    assert repeated == through


def test_a_sweep_that_rides_along_is_gone_through_for_a_few_layers() -> None:
    schedule = schedule_of(RIDING, [], [ACCEL])
    works = dict.fromkeys([*range(3), *range(100, 106), *range(200, 203)], Work(0.25, 3.0, 0.5))
    _, every = moments([schedule], works, [1e3], alike=False)
    _, some = moments([schedule], works, [1e3], alike=True)
    assert some < every / 2

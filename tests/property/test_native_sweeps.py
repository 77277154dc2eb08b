"""Sweeps that the compiled queues run end when those of Python's do, to the bit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.planner import native
from tandem.planner.demand import Demand
from tandem.planner.fluid.groups import QUEUES, Group, Schedule
from tandem.planner.fluid.native_sweeps import native_repeated, native_steady
from tandem.planner.fluid.priced_sweep import PricedSweep
from tandem.planner.fluid.queues import ACCEL, CPU
from tandem.planner.fluid.sweep_ends import Shared, repeated_ends, steady_ends

pytestmark = pytest.mark.skipif(not native.available(), reason="no compiled loops here")

OPS = 5
LANES = 3
DEMANDS = st.builds(
    Demand,
    st.one_of(st.just(0.0), st.floats(1e-6, 2.0), st.sampled_from([0.25, 0.5])),
    st.sampled_from([0.0, 3.0, 8.0, 11.7]),
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
)
PRICES = st.lists(DEMANDS, min_size=OPS, max_size=OPS).map(tuple)
SHARED = st.builds(Shared, st.sampled_from([5.0, 10.0, 1e3]), st.sampled_from([1.0, 1.3, 2.0]))


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Groups that wait for some before them, and for what sweeps before have left; the last one is
    the accelerator's.
    """
    groups: list[Group] = []
    counts = [0] * len(QUEUES)
    queues = draw(st.lists(st.integers(0, len(QUEUES) - 1), max_size=70))
    for queue in [*queues, ACCEL]:
        counts[queue] += 1
        others = draw(st.sets(st.integers(0, len(QUEUES) - 1), max_size=2)) - {queue}
        waits = [(other, draw(st.integers(-2, counts[other]))) for other in others]
        lane = draw(st.sampled_from([None, None, None, *range(LANES)]))
        joins = lane if queue == ACCEL else None
        raises = lane if queue == CPU else None
        ops = {draw(st.integers(0, OPS - 1)): draw(st.integers(1, 3)) for _ in range(2)}
        made = tuple(ops.items())
        groups.append(Group(queue, counts[queue], made, tuple(waits), joins, raises))
    return Schedule((), tuple(groups))


@settings(max_examples=150, deadline=None)
@given(
    made=schedules(),
    prices=PRICES,
    begun=st.floats(0.0, 1.0),
    most=st.integers(1, 8),
    shared=SHARED,
)
def test_a_sweep_that_follows_itself(
    made: Schedule, prices: tuple[Demand, ...], begun: float, most: int, shared: Shared
) -> None:
    sweep, first = PricedSweep(made, prices), int(begun * made.by_queue[ACCEL][-1])
    assert native_repeated(sweep, first, most, shared) == repeated_ends(sweep, first, most, shared)


COHORTS = st.one_of(
    st.just(()), st.lists(st.integers(0, 1), min_size=LANES, max_size=LANES).map(tuple)
)


@settings(max_examples=150, deadline=None)
@given(
    turns=st.lists(st.builds(PricedSweep, schedules(), PRICES, COHORTS), min_size=1, max_size=3),
    times=st.integers(1, 3),
    begun=st.floats(0.0, 1.0),
    shared=SHARED,
)
def test_sweeps_that_take_turns(
    turns: list[PricedSweep], times: int, begun: float, shared: Shared
) -> None:
    sweeps, cycle = [*turns, *turns * times], len(turns)
    first = int(begun * turns[0].schedule.by_queue[ACCEL][-1])
    expected = steady_ends(sweeps, first, cycle, shared)
    assert native_steady(sweeps, first, cycle, shared) == expected


def one_group(queue: int, waits: tuple[tuple[int, int], ...] = ()) -> Schedule:
    last = Group(ACCEL, 1 + (queue == ACCEL), ((0, 1),), ())
    return Schedule((), (Group(queue, 1, ((0, 1),), waits), last))


@pytest.mark.parametrize(
    ("made", "demands", "reason"),
    [
        (one_group(CPU), (), "an operation has no demand"),
        (one_group(CPU, ((9, 1),)), (Demand(1.0),), "waits for what is no queue"),
        (Schedule((), (Group(CPU, 1, ((0, 1),), ()),)), (Demand(1.0),), "end on the accelerator"),
    ],
)
def test_what_is_no_sweep_is_refused(
    made: Schedule, demands: tuple[Demand, ...], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        native_repeated(PricedSweep(made, demands), 0, 1, Shared(1.0, 2.0))


def test_sweeps_that_wait_for_each_other_are_told() -> None:
    made = one_group(ACCEL, ((CPU, 1),))
    with pytest.raises(RuntimeError, match="wait for each other"):
        native_repeated(PricedSweep(made, (Demand(1.0),)), 0, 1, Shared(1.0, 2.0))


def test_queues_are_those_of_programs() -> None:
    """Their order is that of `Queue` in `native/planner/sweep_schedule.hpp`."""
    assert [queue.value for queue in QUEUES] == ["accel", "h2d", "d2h", "cpu", "weights", "disk"]

"""What both directions of a link keep comes out again, in the planner's queues."""

from dataclasses import replace

import pytest
from tests.support.profiles import accelerator_measurements

from tandem.plan.program import EventKind
from tandem.planner.fluid.groups import Group, Schedule
from tandem.planner.fluid.queues import D2H, H2D, WEIGHTS, FluidQueues, Submission, Work
from tandem.profiling.measurements import AcceleratorMeasurements
from tandem.profiling.shared_link import APART, both_ways
from tandem.profiling.surface import Curve

CARD = accelerator_measurements()
SIZE = 1e9


def link(h2d_s: float, d2h_s: float, both_s: float) -> AcceleratorMeasurements:
    """Of copies of `SIZE`."""
    up, down = (
        replace(each, pinned=Curve((4096.0, SIZE), (1e-6, seconds)), both_bytes_per_s=SIZE / both_s)
        for each, seconds in ((CARD.h2d, h2d_s), (CARD.d2h, d2h_s))
    )
    return replace(CARD, h2d=up, d2h=down)


def last_end_s(shares: dict[int, Work], both: float) -> float:
    """Of works that are submitted at once, each on its queue."""
    queues = FluidQueues(1e12, both_ways=both)
    for queue, work in shares.items():
        group = Group(queue, 1, ((0, 1),), (), event=(EventKind.LANE_DONE, ()))
        queues.submit(Submission(Schedule((), (group,)), lambda _, work=work: [work]))
    while queues.advance():
        pass
    return queues.now_s


@pytest.mark.parametrize(
    ("h2d_s", "d2h_s", "both_s"),
    [
        (0.05, 0.05, 0.05),
        (0.05, 0.05, 0.06),
        (0.05, 0.05, 0.1),
        (0.05, 0.08, 0.08),
        (0.08, 0.05, 0.1),
    ],
)
@pytest.mark.parametrize("queue", [H2D, WEIGHTS])
def test_copies_both_ways_end_when_they_did(
    h2d_s: float, d2h_s: float, both_s: float, queue: int
) -> None:
    share = both_ways(link(h2d_s, d2h_s, both_s))
    works = {queue: Work(h2d_s, 0.0, 1.0), D2H: Work(d2h_s, 0.0, 1.0)}
    assert last_end_s(works, share) == pytest.approx(both_s)


def test_the_slower_rate_of_both_and_no_noise_counts() -> None:
    assert both_ways(link(0.05, 0.05, 0.0505)) == APART
    assert both_ways(link(0.05, 0.05, 0.04)) == APART
    assert both_ways(link(0.05, 0.05, 0.3)) == 1, "no slower than in turns"
    uneven = link(0.05, 0.05, 0.05)
    uneven = replace(uneven, d2h=replace(uneven.d2h, both_bytes_per_s=SIZE / 0.075))
    assert both_ways(uneven) == pytest.approx(2 / 1.5)


def test_what_asks_for_little_of_the_link_slows_nothing_down() -> None:
    copies = {H2D: Work(0.1, 0.0, 0.5), D2H: Work(0.1, 0.0, 0.5)}
    assert last_end_s(copies, 1.0) == pytest.approx(0.1)
    # a small copy goes before the load, and the other direction takes from both
    three = {H2D: Work(0.1, 0.0, 0.5), WEIGHTS: Work(0.05, 0.0, 1.0), D2H: Work(0.1, 0.0, 1.0)}
    assert last_end_s(three, APART) == pytest.approx(0.1)
    assert last_end_s(three, 1.0) == pytest.approx(0.2)

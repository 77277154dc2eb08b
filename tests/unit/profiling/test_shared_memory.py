"""What is fitted to contention comes out again, in the planner's queues."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.profiles import CONTENTION, READ_BYTES_PER_S, host_measurements

from tandem.plan.program import EventKind
from tandem.planner.fluid.groups import Group, Schedule
from tandem.planner.fluid.queues import CPU, DISK, WEIGHTS, FluidQueues, Submission, Work
from tandem.profiling.measurements import Contention, HostMeasurements
from tandem.profiling.shared_memory import SharedMemory, shared_memory

MEASURED = host_measurements()
ATTENTION_BYTES_PER_S = 18e9


def with_contention(*contention: Contention) -> HostMeasurements:
    return replace(MEASURED, contention=contention)


def rate_beside(pool: float, work: float, other: float, queue: int) -> float:
    """Bytes/s of the CPU's work while something else draws `other` throughout, in virtual time."""
    queues = FluidQueues(pool)
    for place, (at, alone_s, rate) in enumerate(((queue, 9.0, other), (CPU, 1.0, work))):
        group = Group(at, 1, ((0, 1),), (), event=(EventKind.LANE_DONE, ()))
        works = [Work(alone_s, rate)]
        schedule = Schedule((), (group,))
        queues.submit(
            Submission(schedule, lambda _, works=works: works, label=place, reported=frozenset({0}))
        )
    (ended,) = queues.advance()
    assert ended.submission.label == 1
    return work / queues.now_s


def test_the_pool_is_what_both_get_and_each_loses_its_part() -> None:
    shared = shared_memory(MEASURED)
    assert shared.bytes_per_s == 22e9, "of attention beside the link, above what cores read"
    link = rate_beside(shared.bytes_per_s, 18e9, shared.link_charge * 12e9, WEIGHTS)
    assert link == pytest.approx(18e9 * 22 / 30)
    disk = rate_beside(shared.bytes_per_s, 18e9, shared.disk_charge * 3e9, DISK)
    assert disk == pytest.approx(18e9 * 20 / 21)


def test_products_are_slowed_down_as_measured_though_they_read_little() -> None:
    shared = shared_memory(MEASURED)
    disk = shared.disk_charge * 3e9
    kept = rate_beside(shared.bytes_per_s, shared.product_bytes_per_s, disk, DISK)
    assert kept / shared.product_bytes_per_s == pytest.approx(0.9)
    alone = rate_beside(shared.bytes_per_s, shared.product_bytes_per_s, 0.0, DISK)
    assert alone == pytest.approx(shared.product_bytes_per_s)


def test_without_link_and_disks_everything_is_charged_as_it_is() -> None:
    beside_others = [each for each in CONTENTION if each.busy == "copies in memory"]
    assert shared_memory(with_contention(*beside_others)) == SharedMemory(READ_BYTES_PER_S)


@given(
    alone=st.floats(1e9, 400e9),
    kept=st.floats(0.1, 1.1),
    other=st.floats(0.5e9, 100e9),
    other_kept=st.floats(0.1, 1.1),
)
def test_both_together_get_what_they_did(
    alone: float, kept: float, other: float, other_kept: float
) -> None:
    both = kept * alone + other_kept * other
    found = Contention(
        "attention", "copies", "memory", "link", alone, kept * alone, other, other_kept * other
    )
    shared = shared_memory(with_contention(found))
    pool, charge = shared.bytes_per_s, shared.link_charge
    assert pool == max(READ_BYTES_PER_S, both)
    assert charge >= 1
    slower = min(1.0, pool / (alone + charge * other))
    least = min(both, 0.98 * (alone + other))  # nor is noise taken for a loss
    if both >= 0.98 * (alone + other):
        assert charge == 1
    assert slower * (alone + other) >= least * (1 - 1e-9)
    if charge > 1 and charge * other < pool * (1 - 1e-9):
        assert slower * (alone + other) == pytest.approx(both, rel=1e-6)
    if other <= pool:
        assert charge * other <= pool * (1 + 1e-9), "alone it is as fast as it was"

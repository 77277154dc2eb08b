"""Deadlines of small programs, computed by hand."""

import pytest
from tests.fakes.paced_program import op, program

from tandem.plan.program import LaneShape, OpKind, Queue
from tandem.runtime.paced.ledger import PacedLedger
from tandem.runtime.paced.timeline import Timeline

COHORT = 5
SUSPENDS = (LaneShape(suspends=True, host=True),)
GUARDED = (LaneShape(cursor=0, suspends=True, host=True, guarded=True),)


def ends(ledger: PacedLedger) -> dict[tuple[int, str, int], tuple[float, float]]:
    """(step, queue, ordinal) -> (start, end) of what was resolved since the last call."""
    return {
        (
            span.entry.program.program.step_id,
            span.entry.op.queue.value,
            span.entry.op.ordinal,
        ): (span.start_s, span.end_s)
        for span in ledger.take_spans()
    }


def test_a_queue_runs_in_order_after_launch() -> None:
    ledger = PacedLedger()
    ops = [op(Queue.ACCEL, 1), op(Queue.ACCEL, 2)]
    ledger.submit(program(ops, ledger.base, lambda _: 1.0, submitted_s=10.0, launch_s=0.25))
    ledger.advance(10.0)
    assert ends(ledger) == {(0, "accel", 1): (10.25, 11.25), (0, "accel", 2): (11.25, 12.25)}


def test_a_dependency_on_another_queue_delays_the_start() -> None:
    ledger = PacedLedger()
    ops = [op(Queue.ACCEL, 1), op(Queue.D2H, 1, (Queue.ACCEL, 1)), op(Queue.ACCEL, 2)]
    ledger.submit(program(ops, ledger.base, lambda o: 2.0 if o.queue is Queue.D2H else 1.0))
    ledger.advance(0.0)
    assert ends(ledger) == {(0, "accel", 1): (0.0, 1.0), (0, "accel", 2): (1.0, 2.0)}
    assert ledger.next_s == 1.0, "the copy begins"
    ledger.advance(2.9)
    assert ends(ledger) == {}, "something may still slow it down"
    assert ledger.next_s == 3.0
    ledger.advance(3.0)
    assert ends(ledger) == {(0, "d2h", 1): (1.0, 3.0)}


def test_a_device_operation_waits_for_the_hosts_own_stamp() -> None:
    ledger = PacedLedger()
    ops = [
        op(Queue.ACCEL, 1),
        op(Queue.CPU, 1, (Queue.ACCEL, 1)),
        op(Queue.ACCEL, 2, (Queue.CPU, 1)),
    ]
    ledger.submit(program(ops, ledger.base, lambda _: 1.0))
    ledger.advance(0.0)
    task = ledger.take_task()
    assert task is not None
    assert task.not_before_s == 1.0
    assert ends(ledger) == {(0, "accel", 1): (0.0, 1.0)}
    assert ledger.free_s(Queue.ACCEL) is None
    ledger.begin(task, 1.5, 0.0, alone_s=2.5)
    ledger.advance(4.0)
    assert ends(ledger) == {(0, "cpu", 1): (1.5, 4.0), (0, "accel", 2): (4.0, 5.0)}
    assert ledger.take_task() is None


def test_bases_order_programs_among_each_other() -> None:
    ledger = PacedLedger()
    ledger.submit(program([op(Queue.ACCEL, 1)], ledger.base, lambda _: 3.0))
    second = [op(Queue.D2H, 1, (Queue.ACCEL, 0))]
    ledger.submit(program(second, ledger.base, lambda _: 1.0, step=1))
    ledger.advance(4.0)
    assert ends(ledger)[(1, "d2h", 1)] == (3.0, 4.0)


def cohort_sweep(ledger: PacedLedger, stamp_s: float) -> None:
    """A sweep in which a cohort leaves; its attention ends at `stamp_s`."""
    ops = [op(Queue.CPU, 1, kind=OpKind.ATTEND, raises=0)]
    ledger.submit(
        program(ops, ledger.base, lambda _: 0.0, shapes=SUSPENDS, cohort=COHORT, signal=0)
    )
    ledger.advance(0.0)
    task = ledger.take_task()
    assert task is not None
    ledger.begin(task, 0.0, 0.0, alone_s=stamp_s)


def joining_sweep(ledger: PacedLedger, bound_s: float | None, submitted_s: float = 0.0) -> None:
    ops = [op(Queue.H2D, 1, joins=0), op(Queue.ACCEL, 1, (Queue.H2D, 1))]
    ledger.submit(
        program(
            ops,
            ledger.base,
            lambda o: 0.5 if o.queue is Queue.H2D else 1.0,
            step=1,
            submitted_s=submitted_s,
            shapes=GUARDED,
            cohort=COHORT,
            signal=1,
            max_join_wait_s=bound_s,
        )
    )


@pytest.mark.parametrize(
    ("stamp_s", "joined", "accel"),
    [
        (0.5, True, (1.5, 2.5)),  # ready before the wait: no delay
        (1.75, True, (2.25, 3.25)),  # ready within the bound: the device waits for it
        (2.0, True, (2.5, 3.5)),  # exactly at the bound
        (2.25, False, (2.0, 2.0)),  # too late: refused at the bound, nothing is done
    ],
)
def test_a_guarded_join_is_decided_at_the_bounded_wait(
    stamp_s: float, joined: bool, accel: tuple[float, float]
) -> None:
    ledger = PacedLedger()
    cohort_sweep(ledger, stamp_s)
    joining_sweep(ledger, bound_s=1.0, submitted_s=1.0)
    ledger.advance(4.0)
    (span,) = (s for s in ledger.take_spans() if s.entry.op.queue is Queue.ACCEL)
    assert span.entry.program.guards == {0: joined}
    assert (span.start_s, span.end_s) == accel


def test_an_unstamped_cohort_is_refused_once_the_bound_has_passed_and_not_before() -> None:
    ledger = PacedLedger()
    ops = [op(Queue.CPU, 1, kind=OpKind.ATTEND, raises=0)]
    ledger.submit(program(ops, ledger.base, lambda _: 0.0, shapes=SUSPENDS, cohort=COHORT))
    joining_sweep(ledger, bound_s=1.0)
    ledger.advance(0.5)
    assert ledger.next_s == 1.0
    assert ledger.take_spans() == []
    ledger.advance(1.0)
    assert ledger.next_s is None
    assert ends(ledger) == {(1, "h2d", 1): (1.0, 1.0), (1, "accel", 1): (1.0, 1.0)}


def test_an_unbounded_join_waits_for_its_cohort() -> None:
    ledger = PacedLedger()
    ops = [op(Queue.CPU, 1, kind=OpKind.ATTEND, raises=0)]
    ledger.submit(program(ops, ledger.base, lambda _: 0.0, shapes=SUSPENDS, cohort=COHORT))
    joining_sweep(ledger, bound_s=None)
    ledger.advance(1e9)
    assert ends(ledger) == {}
    assert not ledger.stalled
    task = ledger.take_task()
    assert task is not None
    ledger.begin(task, 0.0, 0.0, alone_s=7.0)
    ledger.advance(7.5)
    assert ends(ledger)[(1, "accel", 1)] == (7.5, 8.5)


def test_a_join_without_any_attention_stalls() -> None:
    ledger = PacedLedger()
    joining_sweep(ledger, bound_s=None)
    ledger.advance(0.0)
    assert ledger.stalled


def test_a_timeline_forgets_only_what_nothing_asks_for() -> None:
    timeline = Timeline()
    for end in (1.0, 2.0, 3.0):
        timeline.append(end)
    timeline.forget(3)
    assert [timeline.end(value) for value in (0, 2, 3, 4)] == [0.0, 0.0, 3.0, None]
    assert timeline.num_resolved == 3
    with pytest.raises(ValueError, match="cannot end"):
        timeline.append(2.5)

"""Shares of overlap: by hand, and against a brute force over drawn schedules."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.paced_program import op, program

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import OpKind, Queue
from tandem.runtime.measures import OverlapTotals
from tandem.runtime.overlap_meter import RECENT_STEPS, OverlapMeter, StepOverlap

Interval = tuple[float, float]


@dataclass
class Steps:
    """Tells a meter of sweeps with so many operations on the accelerator, and some on the CPU."""

    meter: OverlapMeter
    step: int = 0

    def accel(self, *intervals: Interval, submitted_s: float = 0.0) -> None:
        ops = [op(Queue.ACCEL, number + 1) for number in range(len(intervals))]
        made = program(ops, {}, lambda _: 0.0, step=self.step).program
        self.step += 1
        for each, (start_s, end_s) in zip(ops, intervals, strict=True):
            self.meter.executed(ExecutedOp(each, made, (0,), submitted_s, start_s, end_s))

    def cpu(self, start_s: float, end_s: float, kind: OpKind = OpKind.ATTEND) -> None:
        attend = op(Queue.CPU, 1, kind=kind)
        made = program([attend], {}, lambda _: 0.0, step=self.step).program
        self.meter.executed(ExecutedOp(attend, made, (0,), 0.0, start_s, end_s))


@pytest.fixture
def steps() -> Steps:
    return Steps(OverlapMeter())


def test_a_period_lasts_from_one_sweeps_end_to_the_next(steps: Steps) -> None:
    steps.accel((1.0, 2.0), (3.0, 4.0), submitted_s=0.5)
    steps.accel((6.0, 7.0), (7.0, 8.0), submitted_s=5.0)  # 4 to 6 counts: there was work
    steps.meter.pause()
    assert steps.meter.totals == OverlapTotals(2, 7.5, 4.0)
    assert steps.meter.totals.accel_idle_share == pytest.approx(3.5 / 7.5)
    assert steps.meter.totals.hidden_share is None


def test_time_without_work_does_not_count(steps: Steps) -> None:
    steps.accel((0.0, 1.0))
    steps.meter.pause()
    steps.accel((101.0, 102.0), submitted_s=100.5)
    steps.meter.pause()
    assert steps.meter.totals == OverlapTotals(2, 2.5, 2.0)


def test_attention_is_hidden_where_the_accelerator_works(steps: Steps) -> None:
    steps.cpu(0.5, 3.5)
    steps.cpu(3.6, 3.7, OpKind.APPEND)
    steps.accel((0.0, 1.0), (3.0, 4.0))
    steps.meter.pause()
    assert steps.meter.totals == OverlapTotals(1, 4.0, 2.0, 3.0, 1.0)
    assert steps.meter.totals.hidden_share == pytest.approx(1 / 3)


def test_attention_that_ends_last_is_settled_in_a_pause(steps: Steps) -> None:
    steps.accel((0.0, 2.0))
    steps.cpu(1.0, 5.0)
    steps.meter.pause()
    assert steps.meter.totals == OverlapTotals(1, 2.0, 2.0, 4.0, 1.0)


def test_attention_counts_in_the_step_in_which_it_ends_however_late_that_is_told(
    steps: Steps,
) -> None:
    told: list[StepOverlap] = []
    steps.meter.on_step(told.append)
    for number in range(4):  # as an emulator tells of sweeps ahead
        steps.accel((number, number + 1.0))
    steps.cpu(0.5, 1.5)
    steps.cpu(2.0, 2.75)
    for number in range(4, 8):
        steps.accel((number, number + 1.0))
    assert [step.totals.cpu_attention_s for step in told] == [0.0, 1.0, 0.75, 0.0]
    assert [step.end_s for step in told] == [1.0, 2.0, 3.0, 4.0]
    steps.meter.pause()
    assert [step.step_id for step in told] == list(range(8))


def test_recent_steps_are_the_latest(steps: Steps) -> None:
    steps.accel((0.0, 0.5))
    for number in range(1, RECENT_STEPS + 1):
        steps.accel((number, number + 1.0))
    steps.meter.pause()
    recent = steps.meter.recent()
    assert (recent.steps, recent.accel_busy_s) == (RECENT_STEPS, RECENT_STEPS)
    assert steps.meter.totals.steps == RECENT_STEPS + 1
    steps.meter.restart()
    assert steps.meter.totals == steps.meter.recent() == OverlapTotals()


def test_an_accelerator_without_a_gap_is_idle_for_none_of_the_time() -> None:
    busy_s = sum([0.1] * 10)
    assert busy_s < 1.0  # as sums of floats are
    assert OverlapTotals(10, 1.0, busy_s).accel_idle_share == 0.0
    assert OverlapTotals(10, 1.0, 0.999).accel_idle_share == pytest.approx(0.001)
    assert OverlapTotals().accel_idle_share is None


def drawn(longest: int) -> st.SearchStrategy[list[Interval]]:
    """Intervals that follow each other, at multiples of a quarter."""
    gaps = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=longest)

    def placed(pairs: list[tuple[int, int]]) -> list[Interval]:
        at, made = 0, list[Interval]()
        for gap, length in pairs:
            made.append(((at + gap) / 4, (at + gap + length) / 4))
            at += gap + length
        return made

    return gaps.map(placed)


@given(accel=drawn(30), cpu=drawn(20), order=st.randoms(use_true_random=False))
def test_sums_are_those_of_a_brute_force_in_whatever_order_queues_report(
    accel: list[Interval], cpu: list[Interval], order
) -> None:
    steps, told, attended = Steps(OverlapMeter()), list(accel), list(cpu)
    while told or attended:
        if attended and (not told or order.random() < 0.5):
            steps.cpu(*attended.pop(0))
        else:
            steps.accel(told.pop(0))
    steps.meter.pause()
    quarters = range(int(max(accel[-1][1], cpu[-1][1]) * 4) + 1)

    def at(intervals: list[Interval], quarter: int) -> bool:
        return any(start <= quarter / 4 < until for start, until in intervals)

    totals = steps.meter.totals
    assert totals.cpu_attention_s * 4 == sum(at(cpu, q) for q in quarters)
    assert totals.hidden_s * 4 == sum(at(cpu, q) and at(accel, q) for q in quarters)
    assert totals.accel_busy_s * 4 == sum(at(accel, q) for q in quarters)
    assert totals.step_s == accel[-1][1]

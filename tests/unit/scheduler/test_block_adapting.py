"""When shares are solved anew: as predicted times fail, as KV grows, and not otherwise."""

from dataclasses import replace

import pytest
from tests.unit.cost.test_block_pass import ROWS, TERMS

from tandem.cost.block_calibration import BlockFactors, corrected
from tandem.cost.block_pass import PassTerms, PassWork, best_streamed, pass_s, pass_terms
from tandem.plan.events import StepTimes
from tandem.plan.program import OpKind, Queue
from tandem.plan.share_terms import ShareTerms
from tandem.scheduler.blocks.adapting import REVIEWED_EVERY, BlockAdaptation, ShareChange

_QUEUES = (
    (Queue.ACCEL, OpKind.STAGE),
    (Queue.ACCEL, OpKind.ATTEND),
    (Queue.H2D, OpKind.COPY),
    (Queue.WEIGHTS, OpKind.LOAD),
    (Queue.CPU, OpKind.ATTEND),
    (Queue.DISK, OpKind.READ),
    (Queue.CPU, OpKind.STAGE),
)
LENGTH = 600


def work_of(streamed: int, length: int = LENGTH) -> PassWork:
    rows = 2 * ROWS
    return PassWork(2, cpu_rows=rows, cpu_tokens=rows * length).shared(streamed / ROWS)


def times_of(busy: PassTerms, submitted_s: float) -> StepTimes:
    each = dict(zip(_QUEUES, busy, strict=True))
    return StepTimes(submitted_s, submitted_s, submitted_s + 1.0, each)


class Machine:
    """Passes that take what a truth says."""

    def __init__(
        self, truth: ShareTerms, streamed: int, most_pinned_rows: int | None = None
    ) -> None:
        self.truth, self.streamed = truth, streamed
        self.waits = 1.0  # where anything is streamed
        terms = replace(TERMS, most_pinned_rows=most_pinned_rows)
        self.adaptation = BlockAdaptation(terms, ROWS, streamed)
        self._step, self._now_s = 0, 0.0

    def review(self, length: int = LENGTH) -> ShareChange | None:
        """Passes until the next one."""
        while not self.adaptation.is_due:
            work = work_of(self.streamed, length)
            self.adaptation.submitted(self._step, work)
            self.adaptation.retired(self._step, times_of(pass_terms(self.truth, work), self._now_s))
            self._step += 1
            self._now_s += pass_s(self.truth, work) * (self.waits if self.streamed else 1.0)
        change = self.adaptation.review(work_of(self.streamed, length))
        if change is not None:
            self.streamed = change.streamed_rows
        return change


def planned(length: int = LENGTH) -> int:
    return best_streamed(TERMS, work_of(0, length), ROWS)[0]


def test_nothing_changes_while_the_truth_holds() -> None:
    machine = Machine(TERMS, planned())
    assert [machine.review() for _ in range(5)] == [None] * 5


def test_a_link_of_a_third_is_planned_for_once() -> None:
    truth = corrected(TERMS, BlockFactors(link=3.0), [])
    machine = Machine(truth, planned())
    before_s = pass_s(truth, work_of(machine.streamed))
    change = machine.review()
    assert change is not None
    assert change.said is not None
    assert "link 3.00" in change.said
    assert f"took {before_s:.3g}" in change.said
    assert machine.streamed == best_streamed(truth, work_of(0), ROWS)[0] < planned()
    assert pass_s(truth, work_of(machine.streamed)) < before_s
    assert [machine.review() for _ in range(5)] == [None] * 5


def test_a_little_is_no_reason_to_plan_anew() -> None:
    machine = Machine(replace(TERMS, slack=1.15 * TERMS.slack), planned())
    assert machine.review() is None
    said = Machine(replace(TERMS, slack=1.25 * TERMS.slack), planned()).review()
    assert said is not None
    assert said.said is not None
    assert "as before" in said.said


def test_what_a_way_was_measured_to_cost_is_not_forgotten() -> None:
    """Copies that one streamed sequence brought into every layer made passes 1.45 times as long,
    and the corrected terms said the same of passes without any.
    """
    truth = replace(TERMS, most_streamed_rows=1)
    machine = Machine(truth, 0)
    machine.adaptation = BlockAdaptation(truth, ROWS, 0)
    machine.waits = 1.5
    assert machine.review() == ShareChange(1)
    back = machine.review()
    assert back is not None
    assert back.streamed_rows == 0
    assert back.said is not None
    assert [machine.review() for _ in range(3)] == [None] * 3


@pytest.mark.parametrize(("rows", "told"), [(2 * ROWS, True), (ROWS, False)])
def test_where_shares_are_fixed_passes_of_a_block_that_runs_empty_are_not_compared(
    rows: int, told: bool
) -> None:
    """Stages are priced for a whole block, and those of half of it take half as long."""
    adaptation = BlockAdaptation(TERMS, ROWS, ROWS, fixed=True)
    shorter = replace(TERMS, stages_s=TERMS.stages_s / 2, slack=TERMS.slack / 2)
    now_s, said = 0.0, list[str | None]()
    for step in range(2 * REVIEWED_EVERY + 1):
        truth, there = (TERMS, 2 * ROWS) if step < REVIEWED_EVERY else (shorter, rows)
        work = PassWork(2, streamed_rows=there, streamed_tokens=there * LENGTH)
        adaptation.submitted(step, work)
        adaptation.retired(step, times_of(pass_terms(truth, work), now_s))
        if adaptation.is_due:
            change = adaptation.review(work)
            said.append(None if change is None else change.said)
        now_s += pass_s(truth, work)
    assert said[0] is None
    assert ["wrongly predicted" in (line or "") for line in said[1:]] == [True] * told


def test_shares_follow_growing_kv_without_a_word() -> None:
    machine = Machine(TERMS, planned(60))
    assert machine.review(60) is None
    change = machine.review(3000)
    assert change == ShareChange(planned(3000))
    assert planned(3000) > planned(60)


def test_a_pause_is_not_a_long_pass() -> None:
    adaptation = BlockAdaptation(TERMS, ROWS, 5)
    work = work_of(5)
    for step in range(3 * REVIEWED_EVERY):
        adaptation.submitted(step, work)
        adaptation.paused()
        adaptation.retired(step, times_of(pass_terms(TERMS, work), 100.0 * step))
    assert not adaptation.is_due
    for step in range(100, 102 + REVIEWED_EVERY):  # without times nothing is learnt
        adaptation.submitted(step, work)
        adaptation.retired(step, None)
    assert not adaptation.is_due


def test_pinned_memory_bounds_shares_and_that_is_said_once() -> None:
    """The CPU takes three times as long as was planned for, so that more should be streamed."""
    slow = replace(TERMS, host=TERMS.host.times(3.0))
    free, bound = Machine(slow, planned()), planned() + 1
    assert free.review() is not None
    assert free.streamed > bound
    machine = Machine(slow, planned(), most_pinned_rows=bound)
    change = machine.review()
    assert change is not None
    assert change.streamed_rows <= bound
    assert change.bounded is not None
    assert f"pinned memory is for {bound} of a batch's {ROWS} places" in change.bounded
    for _ in range(3):
        later = machine.review()
        assert later is None or later.bounded is None
    assert machine.streamed <= bound
    enough = Machine(slow, planned(), most_pinned_rows=free.streamed).review()
    assert enough is not None
    assert enough.bounded is None

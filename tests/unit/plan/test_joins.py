"""When a sweep begins to wait for a cohort that joins it."""

from dataclasses import replace

from tandem.plan.program import LaneShape, OpKind, Part, ProgramOp, Queue
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.templates import sweep_template

LAYERS, CURSOR = 4, 2
MAIN = LaneShape()
COHORT = LaneShape(suspends=True, device=False, host=True, cursor=CURSOR, guarded=True)


def joining(*lanes: LaneShape) -> tuple[list[ProgramOp], list[ProgramOp]]:
    """The copies that wait for cohorts, and what they wait for."""
    ops = sweep_template(LAYERS, lanes, SweepLayers()).ops
    copies = [op for op in ops if op.joins is not None]
    at = {(op.queue, op.ordinal): op for op in ops}
    return copies, [at[wait.queue, wait.ordinal] for op in copies for wait in op.waits]


def test_results_are_copied_while_the_accelerator_attends_to_the_others() -> None:
    (copy,), (before,) = joining(MAIN, COHORT)
    assert (copy.kind, copy.queue, copy.layer) == (OpKind.COPY, Queue.H2D, CURSOR)
    # not by its attention, which follows
    assert (before.part, before.layer, before.lanes) == (Part.PRE, CURSOR, (0,))


def test_a_pass_of_a_cohort_s_own_comes_after_the_others_attention() -> None:
    (_,), (before,) = joining(MAIN, replace(COHORT, beside=0))
    assert (before.kind, before.layer, before.lanes) == (OpKind.ATTEND, 0, (0,))


def test_a_cohort_by_itself_waits_for_nothing_before() -> None:
    (copy,), before = joining(COHORT)
    assert copy.waits == ()
    assert before == []

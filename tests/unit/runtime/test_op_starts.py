"""Starts that follow from ends: of the queue, of what was waited for, and of the launch."""

from tests.fakes.paced_program import op, program

from tandem.plan.op_runs import OpRun
from tandem.plan.program import ProgramOp, Queue, SignalRef
from tandem.runtime.op_starts import OpStarts
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.running import Completed, Launch

OPS = [
    op(Queue.ACCEL, 1),
    op(Queue.D2H, 1, (Queue.ACCEL, 1)),
    op(Queue.ACCEL, 2),
    op(Queue.CPU, 1, (Queue.D2H, 1)),
    op(Queue.ACCEL, 3, (Queue.CPU, 1)),
]


def ran(which: ProgramOp, begun_s: float, end_s: float, base: int = 0) -> Completed:
    made = program(OPS, {}, lambda _: 0.0).program
    context = ProgramContext(made, [], base=dict.fromkeys(Queue, base))
    return Completed(
        Launch(OpRun((which,), ((which,),), which.waits, False), context), ((begun_s, end_s),)
    )


def test_an_operation_begins_when_launched_free_and_fed() -> None:
    starts = OpStarts()
    assert starts.add(ran(OPS[0], 1.0, 3.0)) == [(1.0, 3.0)]  # as launched
    assert starts.add(ran(OPS[1], 1.1, 4.0)) == [(3.0, 4.0)]  # what it waits for ended
    assert starts.add(ran(OPS[2], 1.2, 5.0)) == [(3.0, 5.0)]  # its queue became free
    assert starts.add(ran(OPS[3], 4.5, 9.0)) == [(4.5, 9.0)]  # launched late
    assert starts.add(ran(OPS[4], 1.3, 10.0)) == [(9.0, 10.0)]


def test_times_of_different_clocks_never_turn_back() -> None:
    starts = OpStarts()
    starts.add(ran(OPS[0], 1.0, 3.0))
    assert starts.add(ran(OPS[1], 1.1, 2.99)) == [(2.99, 2.99)]
    assert starts.add(ran(OPS[2], 1.2, 2.9)) == [(3.0, 3.0)]


def test_ends_of_long_ago_delay_nothing() -> None:
    starts = OpStarts()
    for number in range(5_000):
        starts.add(ran(op(Queue.D2H, 1), number, number + 1, base=number))
    early = op(Queue.ACCEL, 1, (Queue.D2H, 1))
    assert starts.add(ran(early, 7.0, 8.0)) == [(7.0, 8.0)]
    late = op(Queue.ACCEL, 2, (Queue.D2H, 5_000))
    assert starts.add(ran(late, 7.0, 6_000.0)) == [(5_000.0, 6_000.0)]


def test_parts_of_a_run_follow_each_other_and_who_waits_for_it_waits_for_the_last() -> None:
    starts = OpStarts()
    made = program(OPS, {}, lambda _: 0.0).program
    context = ProgramContext(made, [])
    last = op(Queue.ACCEL, 3)
    run = OpRun((OPS[0], OPS[2], last), ((OPS[0], OPS[2]), (last,)), (), False)
    ended = Completed(Launch(run, context), ((1.0, 3.0), (4.0, 6.0)))
    assert starts.add(ended) == [(1.0, 3.0), (4.0, 6.0)]  # launched when it was idle
    down = op(Queue.D2H, 1)
    copied = Launch(OpRun((down,), ((down,),), (SignalRef(Queue.ACCEL, 3),), False), context)
    assert starts.add(Completed(copied, ((1.0, 7.0),))) == [(6.0, 7.0)]

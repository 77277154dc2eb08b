"""Deadlines against a plain longest-path computation over random programs and random stamps."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.paced_program import op, program

from tandem.plan.program import ProgramOp, Queue
from tandem.runtime.paced.ledger import PacedLedger

QUEUES = [queue for queue in Queue if queue is not Queue.WEIGHTS]  # whose loads share a link


@dataclass(frozen=True)
class Case:
    programs: list[list[ProgramOp]]
    costs: list[list[float]]
    submitted_s: list[float]
    launch_s: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    programs, costs, times = [], [], []
    now = 0.0
    for _ in range(draw(st.integers(1, 3))):
        counts = dict.fromkeys(QUEUES, 0)
        ops: list[ProgramOp] = []
        for _ in range(draw(st.integers(1, 12))):
            queue = draw(st.sampled_from(QUEUES))
            others = [other for other in QUEUES if other is not queue]
            waited = draw(st.lists(st.sampled_from(others), max_size=2, unique=True))
            waits = [(other, draw(st.integers(0, counts[other]))) for other in waited]
            counts[queue] += 1
            ops.append(op(queue, counts[queue], *waits))
        programs.append(ops)
        costs.append([draw(st.integers(0, 20)) / 8 for _ in ops])
        now += draw(st.integers(0, 30)) / 8
        times.append(now)
    return Case(programs, costs, times, draw(st.integers(0, 4)) / 8)


def longest_path(case: Case) -> dict[tuple[int, Queue, int], tuple[float, float]]:
    """Start and end of every operation by its definition, in program order."""
    ends: dict[Queue, list[float]] = {queue: [0.0] for queue in QUEUES}
    found: dict[tuple[int, Queue, int], tuple[float, float]] = {}
    for step, ops in enumerate(case.programs):
        base = {queue: len(done) - 1 for queue, done in ends.items()}
        for each, cost in zip(ops, case.costs[step], strict=True):
            ready = [ends[wait.queue][base[wait.queue] + wait.ordinal] for wait in each.waits]
            launched = case.submitted_s[step] + case.launch_s
            start = max([launched, ends[each.queue][-1], *ready])
            ends[each.queue].append(start + cost)
            found[(step, each.queue, each.ordinal)] = (start, start + cost)
    return found


@given(cases(), st.randoms(use_true_random=False))
def test_deadlines_are_the_longest_path_in_whatever_order_stamps_arrive(case, random) -> None:
    ledger = PacedLedger()
    spans = []
    host_free = 0.0
    pending = list(enumerate(case.programs))
    while pending or ledger.has_task():
        if pending and (not ledger.has_task() or random.random() < 0.5):
            step, ops = pending.pop(0)
            cost_of = {(o.queue, o.ordinal): c for o, c in zip(ops, case.costs[step], strict=True)}
            ledger.submit(
                program(
                    ops,
                    ledger.base,
                    lambda o, costs=cost_of: costs[(o.queue, o.ordinal)],
                    step=step,
                    submitted_s=case.submitted_s[step],
                    launch_s=case.launch_s,
                )
            )
        else:
            task = ledger.take_task()
            assert task is not None
            start = max(task.not_before_s, host_free)
            owner = task.entry.program
            host_free = start + owner.cost_s(task.entry.op, (0,))
            ledger.stamp(task, start, host_free)
        ledger.advance(0.0)
        spans += ledger.take_spans()
    found = {
        (s.entry.program.program.step_id, s.entry.op.queue, s.entry.op.ordinal): (
            s.start_s,
            s.end_s,
        )
        for s in spans
    }
    assert found == longest_path(case)
    assert len(spans) == len(found)

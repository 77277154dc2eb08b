"""Deadlines against a plain longest-path computation over random programs and random stamps."""

from dataclasses import dataclass
from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.paced_program import op, program

from tandem.plan.program import ProgramOp, Queue
from tandem.runtime.paced.ledger import HostTask, PacedLedger, Span

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


class Driver:
    """Submits programs in time, and executes the host's operations when they can begin, or as soon
    as that is foreseen, as it pleases.
    """

    def __init__(self, case: Case, random: Random) -> None:
        self.case, self.random, self.ledger = case, random, PacedLedger()
        self.spans: list[Span] = []
        self.held: HostTask | None = None

    def run(self) -> None:
        for step, submitted_s in enumerate(self.case.submitted_s):
            self._pass_to(submitted_s)
            self._submit(step)
            self._advance(submitted_s)
        self._pass_to(inf)

    def _pass_to(self, until_s: float) -> None:
        while True:
            moments = [self.ledger.next_s, self.held and self.held.not_before_s]
            next_s = min((at for at in moments if at is not None), default=inf)
            if next_s > until_s or next_s == inf:
                return
            self._advance(next_s)

    def _advance(self, now_s: float) -> None:
        while self.ledger.advance(now_s):
            if self.held is None and (task := self.ledger.take_task()) is not None:
                self._begin(task, task.not_before_s)
        if self.held is None and self.random.random() < 0.5:
            self.held = self.ledger.take_task(ahead=True)
        elif self.held is not None and self.held.not_before_s <= now_s:
            task, self.held = self.held, None
            self._begin(task, now_s)
        self.spans += self.ledger.take_spans()

    def _begin(self, task: HostTask, now_s: float) -> None:
        owner = task.entry.program
        self.ledger.begin(task, now_s, 0.0, owner.cost_s(task.entry.op, (0,)))

    def _submit(self, step: int) -> None:
        case, ops = self.case, self.case.programs[step]
        cost_of = {(o.queue, o.ordinal): c for o, c in zip(ops, case.costs[step], strict=True)}
        self.ledger.submit(
            program(
                ops,
                self.ledger.base,
                lambda o: cost_of[(o.queue, o.ordinal)],
                step=step,
                submitted_s=case.submitted_s[step],
                launch_s=case.launch_s,
            )
        )


@given(cases(), st.randoms(use_true_random=False))
def test_deadlines_are_the_longest_path_whoever_executes_the_hosts_part(case, random) -> None:
    driver = Driver(case, random)
    driver.run()
    found = {
        (s.entry.program.program.step_id, s.entry.op.queue, s.entry.op.ordinal): (
            s.start_s,
            s.end_s,
        )
        for s in driver.spans
    }
    assert found == longest_path(case)
    assert len(driver.spans) == len(found)

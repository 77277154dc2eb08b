"""How long the engine keeps the request waiting that nobody outranks (invariant 6)."""

from dataclasses import dataclass

from tests.support.engines import TestEngine

from tandem.plan.events import Event, LaneAdvanced
from tandem.plan.program import StepProgram
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.rows import RowState
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.sequence import Sequence

_PARKED_SWEEPS = 8  # as strategies have it: for so many a cohort may be left where it stands


def most_sweeps(config: SchedulerConfig) -> float:
    """Sweeps without a token of whoever is first in rank, beyond one for each token to be read.

    A cohort gets on by a layer, and is sampled, after at most eight sweeps in which it is left out
    and those in flight. Somebody may wait for as long as a cohort takes until its turn comes, until
    a cohort that is under way ends, until one ends that gives up its memory, and for its own.
    """
    sweeps = 4 * (_PARKED_SWEEPS + config.launch_ahead_steps) * (config.num_layers + 1)
    # by the clock of tests, which goes on by a second whenever the order of prompts is asked for
    return sweeps + 4 * (config.ttft_bound_s or 0.0)


@dataclass(slots=True)
class WaitWatch:
    """Counts sweeps that bring the first in rank, once it has a row, no token.

    A sweep does not count while the row's KV is being copied, which no order of sweeps speeds up,
    nor does one in which a cohort's join was refused, which is the executor's doing.

    Attributes:
        longest: sweeps without a token of whoever was first, beyond one for each token that it had
            to read before.
    """

    engine: TestEngine
    longest: int = 0
    _first: tuple[str, int, int] | None = None
    _sweeps: int = 0
    _unread: int = 0
    _submitted: int = 0
    _refused: int = 0

    def __post_init__(self) -> None:
        executor = self.engine.executor
        submit, poll = executor.submit, executor.poll

        def submitted(program: StepProgram) -> None:
            self._submitted += bool(program.lanes)
            submit(program)

        def polled(*, wait: bool) -> list[Event]:
            events = poll(wait=wait)
            self._refused += sum(isinstance(e, LaneAdvanced) and not e.joined for e in events)
            return events

        executor.submit, executor.poll = submitted, polled

    def look(self) -> None:
        """After a step of the engine."""
        sweeps, self._submitted, self._refused = self._submitted - self._refused, 0, 0
        first = _first(self.engine.scheduler)
        if first is None:
            self._first = None
            return
        scheduler = self.engine.scheduler
        row = first.row
        assert row is not None
        now = (first.request_id, int(scheduler.rows.known[row]), first.preemptions)
        if now != self._first:
            self._first, self._sweeps = now, 0
            self._unread = int(scheduler.rows.known[row] - scheduler.rows.computed[row])
            return
        if scheduler.rows.state[row] in (RowState.RUNNING, RowState.DRAINING):
            self._sweeps += max(0, sweeps)
        self.longest = max(self.longest, self._sweeps - self._unread)
        assert self.longest <= most_sweeps(scheduler.config), f"{first.request_id} waits"


def _first(scheduler: Scheduler) -> Sequence | None:
    """The unfinished request that nobody outranks, if it has a row."""
    running = scheduler.running
    found = [running.find(name) for name in running.ids()]
    alive = [each for each in found if each is not None]
    first = min(alive, key=lambda each: each.rank, default=None)
    return first if first is not None and first.row is not None else None

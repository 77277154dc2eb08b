"""What the simulator says of a plan that is kept full, as the closed loop keeps an engine."""

from collections.abc import Callable

from tandem.bench.online.cell import Load
from tandem.bench.online.closed_loop import QUEUE_DIVISOR
from tandem.bench.online.plans import Planned
from tandem.bench.online.requests import SHAPES, SteadyShapes
from tandem.simulator.build import Planned as Simulated
from tandem.simulator.build import build
from tandem.simulator.loop import Loop
from tandem.simulator.record import Record

_WINDOWS, _PERIODS = 4.0, 6
"""A window in virtual time: as long as so many of an engine's, and so many tokens of the slowest
requests.
"""


def simulated(planned: Planned) -> Simulated:
    """The same plan as the simulator takes it.

    Raises:
        ValueError: the policy cannot run this.
    """
    if planned.option is None or planned.plan is None:
        raise ValueError(f"{planned.policy} has no plan")
    return Simulated(planned.question, planned.option, planned.plan)


def steady_tokens_per_s(planned: Planned, load: Load, window_s: float) -> float:
    """Once the first requests, at progress that is spread evenly, all run, and prompts are read
    evenly. Where there are any, as many requests end in the window as there are rows; else it lasts
    as long as a slowest request.

    Args:
        window_s: least time of an engine's.
    """
    assert planned.option is not None
    assert planned.plan is not None
    rows, tokens = planned.counted_rows, planned.plan.max_num_batched_tokens
    full = _Full(planned, SteadyShapes(load.workload(SHAPES).requests, rows, tokens))
    full.fill()
    settled = full.sweeps + load.settling_steps
    full.run_until(lambda: full.sweeps >= settled)
    rates = planned.option.prediction.rates
    life_s = load.life_s(rates)
    settled_s = full.record.progress[-1][0] + life_s
    full.run_until(lambda: full.record.progress[-1][0] >= settled_s)
    begin_s, before = full.record.progress[-1]
    tpot_s = rates.worst_tpot_s
    until_s = begin_s + max(_WINDOWS * window_s, _PERIODS * tpot_s, load.whole_s(life_s))
    ended = 0 if load.decodes_only else full.ended + rows
    full.run_until(lambda: full.record.progress[-1][0] >= until_s and full.ended >= ended)
    end_s, after = full.record.progress[-1]
    return (after - before) / (end_s - begin_s)


class _Full:
    """A simulated engine for which enough requests wait at any time."""

    def __init__(self, planned: Planned, shapes: SteadyShapes) -> None:
        assert planned.plan is not None
        rows = planned.plan.max_num_seqs
        self._shapes, self._spare = shapes, max(1, rows // QUEUE_DIVISOR)
        self._machine = build(simulated(planned))
        self.record = Record(())
        self._most = rows + self._spare
        self._last: str | None = None
        machine = self._machine
        self._loop = Loop(machine.scheduler, machine.executor, self.record, machine.token_id, None)

    @property
    def sweeps(self) -> int:
        """Submitted so far."""
        return self._machine.executor.sweeps

    @property
    def ended(self) -> int:
        """Requests that are done."""
        return len(self.record.finish_s)

    def fill(self) -> None:
        """All rows run."""
        self.run_until(lambda: not self._shapes.left)
        first = {str(number) for number in range(len(self.record.requests))}
        self.run_until(lambda: first <= self.record.first_s.keys())

    def run_until(self, there: Callable[[], bool]) -> None:
        """Step by step."""
        while not there():
            self._top_up()
            went_on = self._loop.step()
            assert went_on, "requests wait, so something can run"

    def _top_up(self) -> None:
        """As a closed loop does."""
        shapes, came = self._shapes, len(self.record.requests)
        if not shapes.left:
            count = self._spare if came - self.ended < self._most else 0
            self._loop.add(tuple(shapes.next() for _ in range(count)))
            return
        coming = shapes.followers(self.ended)
        if self._last is None or self._last in self.record.first_s:
            coming += shapes.batch()
            self._last = str(came + len(coming) - 1)
        self._loop.add(tuple(coming))

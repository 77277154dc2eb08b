"""One measured window of a paced engine in its steady state."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tandem.bench.online.bed import Bed
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.engine import build_engine
from tandem.bench.online.plans import Planned
from tandem.bench.online.requests import SHAPES
from tandem.bench.replay.replay import Recorded
from tandem.engine.building.paced import PacedEngine
from tandem.runtime.measures import OverlapTotals
from tandem.runtime.paced.report import PacedReport

MIN_PERIODS = 3
"""Tokens of the slowest requests that a window lasts at least."""
_SETTLING_PERIODS = 2


@dataclass(frozen=True, slots=True)
class Window:
    """From one token of the slowest requests to another of theirs.

    Attributes:
        tokens_per_s: emitted by all.
        period_s: mean time between tokens of the slowest.
        joins, waits: of cohorts.
        overlap: of CPU and accelerator, some sweeps late.
    """

    tokens_per_s: float
    wall_s: float
    period_s: float
    joins: int
    waits: int
    overlap: OverlapTotals
    report: PacedReport


class PacedRun:
    """An engine that executes a plan, and is measured now and then.

    Args:
        min_window_s: least time of a window. min_ends: fewest requests that end in it.
        clock: the emulator's.
    """

    def __init__(
        self,
        engine: PacedEngine,
        loop: ClosedLoop,
        min_window_s: float,
        min_ends: int,
        clock: Callable[[], float],
    ) -> None:
        self._engine, self._loop, self._min_s, self._clock = engine, loop, min_window_s, clock
        self._min_ends = min_ends
        self._marker: str | None = None

    def measure(self) -> Window:
        """Whole periods of the slowest, after some that are not counted: others ran meanwhile."""
        self._settle()
        before = self._engine.core.stats()
        self._engine.executor.begin_window()
        begin_s = now_s = self._clock()
        tokens = periods = 0
        ended = self._loop.ended + self._min_ends
        while periods < MIN_PERIODS or now_s - begin_s < self._min_s or self._loop.ended < ended:
            tokens += self._to_next()
            now_s = self._clock()
            periods += 1
        after, wall_s = self._engine.core.stats(), now_s - begin_s
        window = Window(
            tokens_per_s=tokens / wall_s,
            wall_s=wall_s,
            period_s=wall_s / periods,
            joins=after.cohort_joins - before.cohort_joins,
            waits=after.cohort_waits - before.cohort_waits,
            overlap=_since(before.overlap, after.overlap),
            report=self._engine.executor.report(),
        )
        if self._engine.journal is not None:
            self._engine.journal.pack()
        return window

    def recorded(self, name: str, num_layers: int) -> Recorded:
        """All of it from its first program on, if it is kept; see `Recorded`."""
        return Recorded.of(name, self._engine, num_layers)

    def close(self) -> None:
        """End the engine."""
        self._loop.close()

    def _settle(self) -> None:
        """Until what others' windows left behind is over, and has been told of: the period of the
        first sweep from here on spans them, and is told of some sweeps late.
        """
        first = self._engine.core.stats().num_steps + 1
        periods = 0
        while periods < _SETTLING_PERIODS or self._told() < first:
            self._to_next()
            periods += 1

    def _told(self) -> int:
        """Sweeps whose periods are counted."""
        overlap = self._engine.core.stats().overlap
        assert overlap is not None, "the paced emulator tells of overlap"
        return overlap.steps

    def _to_next(self) -> int:
        """Run until a marked one of the slowest requests emits; tokens of all meanwhile."""
        marker, tokens = self._marker, 0
        if marker is None or marker not in self._loop.running:
            while not self._loop.running:  # all have ended, and others read their prompts
                tokens += self._loop.step()[0]
            marker = self._slowest(self._loop.running)
        while True:
            count, emitting = self._loop.step()
            tokens += count
            if marker in emitting:
                # who emits together with it stands for it when it ends
                ended = marker not in self._loop.running
                beside = emitting.intersection(self._loop.running) if ended else ()
                self._marker = self._slowest(beside) if beside else None if ended else marker
                return tokens

    def _slowest(self, among: Iterable[str]) -> str:
        """Of those, one with the most tokens left."""
        running = self._loop.running
        return max(among, key=lambda name: (running[name].gap, running[name].left))


def _since(before: OverlapTotals | None, after: OverlapTotals | None) -> OverlapTotals:
    assert before is not None, "the paced emulator tells of overlap"
    assert after is not None
    return after.since(before)


def steady_run(
    cell: OnlineCell, bed: Bed, planned: Planned, window_s: float, *, journaled: bool = False
) -> PacedRun:
    """An engine that executes the plan, in its steady state.

    Virtual time passes before a window, as long as a slowest request takes, and as long in each
    where prompts are of one token: requests fall into step, and a moment shows them young or old.
    Where there are prompts, as many requests end in it as there are rows, since it is chance in
    which sweeps prompts are read.

    Args:
        journaled: keep its programs, to be executed again.
    """
    assert planned.plan is not None, f"{planned.policy} cannot run this"
    clock = bed.clock()
    engine = build_engine(cell, bed, planned, clock, journaled=journaled)
    rows, most = planned.counted_rows, planned.plan.max_num_seqs
    step_tokens = planned.plan.max_num_batched_tokens
    forward = engine.executor.fast_forward
    loop = ClosedLoop(engine.core, cell.load.workload(SHAPES), rows, most, step_tokens, forward)
    loop.fill(cell.load.settling_steps)
    if bed.virtual and planned.option is not None:
        life_s = cell.load.life_s(planned.option.prediction.rates)
        settled_s = clock.now() + life_s
        while clock.now() < settled_s:
            loop.step()
        window_s = max(window_s, cell.load.whole_s(life_s))
    if engine.journal is not None:
        engine.journal.pack()
    ends = 0 if cell.load.decodes_only else rows
    return PacedRun(engine, loop, window_s, ends, clock.now)

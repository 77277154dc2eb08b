"""Runs of steps that only decode, taken without the scheduler."""

from collections.abc import Iterator

import numpy as np

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.plan.binding import LongArray
from tandem.plan.events import LaneDone, StepRetired, TokensSampled
from tandem.planner.fluid.queues import NEVER
from tandem.scheduler.scheduler import Proposed, Scheduler
from tandem.scheduler.steady import SteadyDecode, SteadyRun
from tandem.simulator.executor import SimulatedExecutor
from tandem.simulator.record import Record
from tandem.spec.tier import TIERS, Tier

_NO_ATTENTION = AttentionWork(0, 0, 0)


class Skipper:
    """Executes steady runs: the same sweeps on the same queues, submitted at the same moments.

    Args:
        token_id: what every row samples.
        windows: of each layer of the model.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        executor: SimulatedExecutor,
        record: Record,
        token_id: int,
        windows: tuple[int, ...],
    ) -> None:
        self._scheduler, self._executor, self._record = scheduler, executor, record
        self._steady = SteadyDecode(scheduler)
        self._token_id, self._windows = token_id, windows

    @property
    def proposed(self) -> Proposed | None:
        """What was proposed for the next step when the last call found no run, if it was asked."""
        return self._steady.proposed

    def skip(self, next_arrival_s: float) -> int:
        """Take the run that begins now, up to an arrival; returns its steps, 0 if there is none."""
        latest = self._executor.latest
        found = self._steady.find(latest[0].load.lanes[0].tokens if latest else 0)
        if found is None:
            return 0
        run, first = found
        works = self._works(run)
        if works is None:
            return 0
        request_ids = self._steady.request_ids(run)
        kept: list[LaneDone | StepRetired] = []
        steps = 0
        for work in works:
            # what comes after the first step was looked at when the run was found
            if steps > 1 and not self._steady.goes_on(run, first, steps):
                break
            self._executor.repeat(work)
            steps += 1
            kept += self._until_tokens()
            if steps == 1:  # prompts of a token, in the sweep before the run, are like rows
                self._record.started(self._executor.now_s, request_ids)
            self._record.decoded(self._executor.now_s, request_ids)
            if next_arrival_s <= self._executor.now_s:
                break
        self._steady.take(run, first, steps, self._token_id)
        last = self._executor.latest[0].step_id
        self._scheduler.observe(
            [e for e in kept if isinstance(e, StepRetired) or e.step_id == last]
        )
        return steps

    def _until_tokens(self) -> list[LaneDone | StepRetired]:
        """Go on until a step's tokens are known; what else has been reported."""
        found: list[LaneDone | StepRetired] = []
        while True:
            events = self._executor.run_until(NEVER)
            assert events, "nothing in flight can end"
            found += (event for event in events if isinstance(event, LaneDone | StepRetired))
            if any(isinstance(event, TokensSampled) for event in events):
                return found

    def _works(self, run: SteadyRun) -> Iterator[LaneWork] | None:
        """What each step computes; None where rows in both tiers see windows."""
        if any(self._windows) and run.elsewhere.any():
            return None
        return _decode_works(run, self._windows)


def _decode_works(run: SteadyRun, windows: tuple[int, ...]) -> Iterator[LaneWork]:
    """As `count_work` counts them of the programs that the scheduler would have compiled."""
    here = run.positions + 1 - run.elsewhere
    growing = {Tier.HOST: run.on_host, Tier.DEVICE: ~run.on_host}
    seen = {tier: here[growing[tier]] for tier in TIERS}
    still = {tier: run.elsewhere[~growing[tier]] for tier in TIERS}
    rows = len(run.rows)
    first = LaneWork(
        tokens=rows,
        logits=rows,
        by_window={},
        windows=windows,
        appended={tier: len(seen[tier]) for tier in TIERS},
    )
    for step in range(run.steps):
        by_window = {
            window: {tier: _attention(seen[tier] + step, still[tier], window) for tier in TIERS}
            for window in set(windows)
        }
        yield first._replace(by_window=by_window)


def _attention(seen: LongArray, still: LongArray, window: int) -> AttentionWork:
    """Of rows that see `seen` keys in a tier, and of rows that grow in the other one."""
    keys = int((np.minimum(seen, window) if window else seen).sum()) + int(still.sum())
    tokens = len(seen) + int(np.count_nonzero(still))
    return AttentionWork(tokens, keys, keys) if tokens else _NO_ATTENTION

"""Runs of steps that only decode, taken without the scheduler."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tandem.cost.lane_work import LaneWork
from tandem.cost.stage import AttentionWork
from tandem.plan.binding import LongArray
from tandem.plan.events import LaneDone, StepRetired, TokensSampled
from tandem.planner.fluid.queues import NEVER
from tandem.scheduler.scheduler import Scheduler
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

    def skip(self, next_arrival_s: float) -> int:
        """Take the run that begins now, up to an arrival; returns its steps, 0 if there is none."""
        if not self._may_repeat():
            return 0
        run = self._steady.find()
        works = None if run is None else self._works(run)
        if run is None or works is None:
            return 0
        request_ids = self._steady.request_ids(run)
        kept: list[LaneDone | StepRetired] = []
        steps = 0
        for work in works:
            self._executor.repeat(work)
            steps += 1
            kept += self._until_tokens()
            if steps == 1:  # prompts of a token, in the sweep before the run, are like rows
                self._record.started(self._executor.now_s, request_ids)
            self._record.decoded(self._executor.now_s, request_ids)
            if next_arrival_s <= self._executor.now_s:
                break
        self._steady.take(run, steps, self._token_id)
        last = self._executor.latest[0].step_id
        self._scheduler.observe(
            [e for e in kept if isinstance(e, StepRetired) or e.step_id == last]
        )
        return steps

    def _may_repeat(self) -> bool:
        """Whether the last sweep had a token of each row; the next ones are then like it."""
        latest, rows = self._executor.latest, self._scheduler.rows
        return bool(latest) and latest[0].load.lanes[0].tokens == rows.max_rows - rows.num_free

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
        yield replace(first, by_window=by_window)


def _attention(seen: LongArray, still: LongArray, window: int) -> AttentionWork:
    """Of rows that see `seen` keys in a tier, and of rows that grow in the other one."""
    keys = int((np.minimum(seen, window) if window else seen).sum()) + int(still.sum())
    tokens = len(seen) + int(np.count_nonzero(still))
    return AttentionWork(tokens, keys, keys) if tokens else _NO_ATTENTION

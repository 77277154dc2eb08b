"""Runs of steps in which every row decodes one token and nothing else happens.

Such steps change the scheduler's state in a way that is known beforehand, so a simulation may take
many of them at once: it finds a run, executes its sweeps by itself, and lets the state catch up.
"""

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import LongArray
from tandem.scheduler.foreseen import IDS_PER_STEP, FirstStep, SteadyRun, steps_later, view_after
from tandem.scheduler.in_flight import RowsInFlight, SamplingInFlight
from tandem.scheduler.kv_manager import NO_BLOCKS, BlockNeed
from tandem.scheduler.row_set import RowSet, same_rows
from tandem.scheduler.rows import RowState
from tandem.scheduler.scheduler import Proposed, Scheduler
from tandem.scheduler.strategies.base import Repeats
from tandem.spec.tier import Tier

_LAUNCH_AHEAD = 2
_MAIN = 0
_LEAST_LEFT = np.array(2, dtype=np.int32)  # tokens of a row, with which a run could have one step


class SteadyDecode:
    """Finds runs of a scheduler, and takes them.

    Attributes:
        proposed: what was proposed when no run was found, if it was asked for.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler
        strategy = scheduler.strategy
        self._asked = strategy if isinstance(strategy, Repeats) else None
        self.proposed: Proposed | None = None

    def find(self, tokens: int) -> tuple[SteadyRun, FirstStep] | None:
        """The run that begins with the next call of `schedule`, if it has two steps at least.

        To be asked when `schedule` might submit something. Rows keep decoding until the first of
        them ends; requests that found no room wait on, since room only shrinks.

        Args:
            tokens: of the last sweep's first lane.
        """
        self.proposed = None
        r = self._s.rows
        if self._asked is None and (tokens != r.max_rows - r.num_free or self._weighs()):
            return None  # nobody says for how long some rest, or what is best stays best
        in_flight = self._in_flight()
        if in_flight is None:
            return None
        rows = self._s.flight.steps[in_flight].lanes[_MAIN].rows
        if tokens != len(rows):  # it read prompts: the next one is none like it
            return None
        if self._ends_soon(rows) or not self._go_on(rows):
            return None
        run = self._run(in_flight, np.sort(rows.rows))
        first = None if run is None or run.steps <= 1 else self._first(run)
        if run is None or first is None or not self.goes_on(run, first, 1):
            return None
        return run, first

    def goes_on(self, run: SteadyRun, first: FirstStep, steps: int) -> bool:
        """Whether, after so many of its steps, the next one is proposed like the first one."""
        if first.strategy is None:
            return True
        view = view_after(self._s, run, first, steps)
        return first.strategy.repeats(first.proposal, view, self._s.prices)

    def request_ids(self, run: SteadyRun) -> list[str]:
        """Of the run's rows."""
        return self._s.rows.request_ids[run.rows].tolist()

    def take(self, run: SteadyRun, first: FirstStep, steps: int, token_id: int) -> None:
        """Bring the state to where it is once so many steps were submitted and as many reported.

        The step that is in flight then has reported nothing; what steps have retired is for the
        caller to report.
        """
        r, rows = self._s.rows, run.rows
        size = self._s.config.block_size
        short = (r.submitted[rows] + steps) > r.num_blocks[rows] * size
        for row in rows[short].tolist():
            self._s.kv.grow(row, steps)
        for column in (r.submitted, r.known, r.computed):
            column[rows] += steps
        r.last_step[rows] += IDS_PER_STEP * steps
        tokens = np.full(steps, token_id, dtype=np.int32).tobytes()
        for sequence in self._s.running.sequences_of(rows):
            sequence.tokens.frombytes(tokens)
        self._renumber(run.in_flight, steps)
        self._s.went_on(steps_later(first.proposal, steps - 1), first.view)

    # --- is there a run ---------------------------------------------------------------------------

    def _in_flight(self) -> int | None:
        """The only sweep in flight, if there is one of which nothing is known yet."""
        s, flight = self._s, self._s.flight
        if s.config.launch_ahead_steps != _LAUNCH_AHEAD or len(flight.steps) != 1:
            return None
        if flight.late or flight.moves or s.cohorts or s.kv.prefix.enabled:
            return None
        (step,) = flight.steps
        record = flight.steps[step]
        due = {("done", _MAIN), (f"tokens{_MAIN}", step + 1)}
        if record.due != due or flight.next_step != step + IDS_PER_STEP:
            return None
        return None if self._may_find_room() else step

    def _may_find_room(self) -> bool:
        """Whether somebody who waits, for a place or to leave for the host, may find one though all
        that others hold only grows.
        """
        s = self._s
        if len(s.waiting) and s.orders_prompts:
            return True
        leaving = bool(np.count_nonzero(s.rows.leaves[s.rows.owned()]))
        return (len(s.waiting) > 0 or leaving) and s.kv.returning() != NO_BLOCKS

    def _ends_soon(self, rows: RowSet) -> bool:
        """Whether some row has too few tokens left for a run of two steps."""
        r, at = self._s.rows, rows.index
        return bool(np.count_nonzero(r.limit[at] - r.known[at] <= _LEAST_LEFT))

    def _weighs(self) -> bool:
        """Whether what is predicted to be best may change as rows grow."""
        if self._s.prices is None:
            return False
        r = self._s.rows
        return bool(np.count_nonzero(r.num_host_blocks[r.owned()]))

    def _go_on(self, rows: RowSet) -> bool:
        """Whether each of a sweep's rows has a token in flight, no more to compute than that, and
        all others rest.
        """
        r, at = self._s.rows, rows.index
        if rows.alive() is not None:
            return False
        decodes = (r.state[at] == int(RowState.RUNNING)) & (r.pending[at] == 1)
        decodes &= (r.remaining(rows.rows) == 1) & ~r.late[at]
        if np.count_nonzero(decodes) < len(rows):
            return False
        return len(rows) == r.max_rows - r.num_free or self._rest(self._others(rows.rows))

    def _others(self, rows: LongArray) -> LongArray:
        """All rows with owners but these."""
        owned = self._s.rows.state != int(RowState.FREE)
        owned[rows] = False
        return owned.nonzero()[0]

    def _rest(self, rows: LongArray) -> bool:
        """Whether each of these could decode, lies on the host, where it would grow, and has
        nothing in flight.
        """
        r = self._s.rows
        rest = (r.state[rows] == int(RowState.RUNNING)) & (r.pending[rows] == 0)
        rest &= (r.num_host_blocks[rows] > 0) & (r.num_blocks[rows] >= r.device_limit[rows])
        rest &= (r.remaining(rows) == 1) & ~r.late[rows]
        return bool(rest.all())

    def _run(self, in_flight: int, rows: LongArray) -> SteadyRun | None:
        """As long as no row ends, comes into another tier, or lacks memory."""
        r, size = self._s.rows, self._s.config.block_size
        at, held = r.submitted[rows].astype(np.int64), r.num_blocks[rows].astype(np.int64)
        limit = r.device_limit[rows].astype(np.int64)
        room = held * size - at
        last_on_host = r.block_tiers[rows, held - 1] == int(Tier.HOST)
        next_on_host = held >= limit
        on_host = np.where(room > 0, last_on_host, next_on_host)
        hosted = r.num_host_blocks[rows].astype(np.int64)
        if (np.where(on_host, hosted, held - hosted) == 0).any():
            return None
        stays = np.where(on_host, np.iinfo(np.int64).max, limit * size - at)
        in_tier = np.where(next_on_host == on_host, stays, room)
        left = (r.limit[rows] - r.known[rows]).astype(np.int64) - 1
        steps = int(min(left.min(), in_tier.min()))
        free, beside = self._s.kv.free(), self._beside(rows)
        while steps > 1:
            if self._growth(at, held, on_host, steps).plus(beside).fits(free):
                break
            steps //= 2
        elsewhere = np.where(on_host, held - hosted, hosted) * size
        return SteadyRun(steps, in_flight, rows, at, held, on_host, elsewhere)

    def _beside(self, rows: LongArray) -> BlockNeed:
        """Blocks that strategies set aside for a token of each of the rows that rest."""
        kv, others = self._s.kv, self._others(rows)
        return kv.one_block_each(kv.needs_block(others)) if len(others) else NO_BLOCKS

    def _growth(
        self, at: LongArray, held: LongArray, on_host: NDArray[np.bool_], steps: int
    ) -> BlockNeed:
        more = np.maximum(-(-(at + steps) // self._s.config.block_size) - held, 0)
        return BlockNeed(int(more[~on_host].sum()), int(more[on_host].sum()))

    def _first(self, run: SteadyRun) -> FirstStep | None:
        """What the strategy proposes, if that is nothing but to decode these rows."""
        s = self._s
        view = s.view()
        proposal = s.strategy.propose(view, s.prices)
        self.proposed = Proposed(proposal, view)
        if not proposal.only_goes_on or not same_rows(proposal.decode, run.rows):
            return None
        weighs = len(run.rows) < s.rows.max_rows - s.rows.num_free or self._weighs()
        return FirstStep(view, proposal, self._asked if weighs else None)

    # --- catching up ------------------------------------------------------------------------------

    def _renumber(self, step: int, steps: int) -> None:
        """What was in flight has been reported; the last one submitted takes its place."""
        flight, later = self._s.flight, step + IDS_PER_STEP * steps
        record = flight.steps.pop(step)
        lane = record.lanes[_MAIN]
        record.step_id = later
        record.lanes = {_MAIN: RowsInFlight(lane.rows, lane.after + steps)}
        record.due = {("done", _MAIN), (f"tokens{_MAIN}", later + 1)}
        flight.steps[later] = record
        sampling = flight.sampling.pop((step + 1, _MAIN))
        flight.sampling[later + 1, _MAIN] = SamplingInFlight(later, sampling.lane, sampling.rows)
        flight.next_step = later + IDS_PER_STEP

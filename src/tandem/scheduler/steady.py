"""Runs of steps in which every row decodes one token and nothing else happens.

Such steps change the scheduler's state in a way that is known beforehand, so a simulation may take
many of them at once: it finds a run, executes its sweeps by itself, and lets the state catch up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import LongArray
from tandem.scheduler.in_flight import RowsInFlight, SamplingInFlight
from tandem.scheduler.kv_manager import BlockNeed
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.rows import RowState
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.tier import Tier

_LAUNCH_AHEAD = 2
_MAIN = 0
_IDS_PER_STEP = 2  # a sweep's and its sampling's
_LEAST_LEFT = np.array(2, dtype=np.int32)  # tokens of a row, with which a run could have one step


@dataclass(frozen=True, slots=True)
class SteadyRun:
    """Steps that would all be alike.

    Attributes:
        steps: most of them.
        in_flight: the sweep that has been submitted before them.
        rows: int64 [rows]; all there are.
        positions: int64 [rows]; of the first step's tokens.
        on_host: bool [rows]; which of them grow in host memory; they do so throughout.
        elsewhere: int64 [rows]; tokens that each has in the other tier.
    """

    steps: int
    in_flight: int
    rows: LongArray
    positions: LongArray
    on_host: NDArray[np.bool_]
    elsewhere: LongArray


class SteadyDecode:
    """Finds runs of a scheduler, and takes them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._s = scheduler

    def find(self) -> SteadyRun | None:
        """The run that begins with the next call of `schedule`, if it has two steps at least.

        To be asked when `schedule` might submit something. Rows keep decoding until the first of
        them ends; requests that found no room wait on, since room only shrinks.
        """
        in_flight = self._in_flight()
        if in_flight is None or self._ends_soon():
            return None
        rows = self._rows(in_flight)
        run = None if rows is None else self._run(in_flight, rows)
        if run is None or run.steps <= 1 or not self._nothing_else(run):
            return None
        return run

    def request_ids(self, run: SteadyRun) -> list[str]:
        """Of the run's rows."""
        return self._s.rows.request_ids[run.rows].tolist()

    def take(self, run: SteadyRun, steps: int, token_id: int) -> None:
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
        r.last_step[rows] += _IDS_PER_STEP * steps
        tokens = np.full(steps, token_id, dtype=np.int32).tobytes()
        for row in rows.tolist():
            self._s.running.sequence_of(row).tokens.frombytes(tokens)
        self._renumber(run.in_flight, steps)
        self._s.reconsider()

    # --- is there a run ---------------------------------------------------------------------------

    def _in_flight(self) -> int | None:
        """The only sweep in flight, if there is one of which nothing is known yet."""
        s, flight = self._s, self._s.flight
        if s.config.launch_ahead_steps != _LAUNCH_AHEAD or len(flight.steps) != 1:
            return None
        if flight.late or flight.moves or s.cohorts or s.kv.prefix.enabled:
            return None
        leaving = bool(s.rows.leaves[s.rows.owned()].any())  # as soon as the host has room
        if len(s.waiting) and s.orders_prompts:
            return None
        if (len(s.waiting) or leaving) and s.kv.returning() != BlockNeed():
            return None
        (step,) = flight.steps
        record = flight.steps[step]
        due = {("done", _MAIN), (f"tokens{_MAIN}", step + 1)}
        if record.due != due or flight.next_step != step + _IDS_PER_STEP:
            return None
        return step

    def _ends_soon(self) -> bool:
        """Whether some row has too few tokens left for a run of two steps."""
        r = self._s.rows
        rows = r.owned()
        return bool(np.count_nonzero(r.limit[rows] - r.known[rows] <= _LEAST_LEFT))

    def _rows(self, in_flight: int) -> LongArray | None:
        """All rows, if each has a token in flight and only that."""
        r = self._s.rows
        rows = r.owned()
        if self._s.prices is not None and np.count_nonzero(r.num_host_blocks[rows]):
            return None  # what is predicted to be best may change as rows grow
        record = self._s.flight.steps[in_flight].lanes[_MAIN]
        if not np.array_equal(np.sort(record.rows.rows), rows) or record.rows.alive() is not None:
            return None
        decodes = (r.state[rows] == int(RowState.RUNNING)) & (r.pending[rows] == 1)
        decodes &= (r.remaining(rows) == 1) & ~r.late[rows]
        return rows if decodes.all() else None

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
        while steps > 1 and not self._growth(at, held, on_host, steps).fits(self._s.kv.free()):
            steps //= 2
        elsewhere = np.where(on_host, held - hosted, hosted) * size
        return SteadyRun(steps, in_flight, rows, at, on_host, elsewhere)

    def _growth(
        self, at: LongArray, held: LongArray, on_host: NDArray[np.bool_], steps: int
    ) -> BlockNeed:
        more = np.maximum(-(-(at + steps) // self._s.config.block_size) - held, 0)
        return BlockNeed(int(more[~on_host].sum()), int(more[on_host].sum()))

    def _nothing_else(self, run: SteadyRun) -> bool:
        """Whether the strategy wants nothing but to decode these rows."""
        proposal = self._s.strategy.propose(self._s.view(), self._s.prices)
        wanted = StepProposal(decode=proposal.decode)
        others = (
            proposal.chunks, proposal.admissions, proposal.fetches, proposal.spill,
            proposal.preempt, proposal.leave, proposal.swap_in, proposal.resume,
            proposal.cohort_starts, proposal.cohort_joins,
        )  # fmt: skip
        return not any(others) and np.array_equal(wanted.decode, run.rows)

    # --- catching up ------------------------------------------------------------------------------

    def _renumber(self, step: int, steps: int) -> None:
        """What was in flight has been reported; the last one submitted takes its place."""
        flight, later = self._s.flight, step + _IDS_PER_STEP * steps
        record = flight.steps.pop(step)
        lane = record.lanes[_MAIN]
        record.step_id = later
        record.lanes = {_MAIN: RowsInFlight(lane.rows, lane.after + steps)}
        record.due = {("done", _MAIN), (f"tokens{_MAIN}", later + 1)}
        flight.steps[later] = record
        sampling = flight.sampling.pop((step + 1, _MAIN))
        flight.sampling[later + 1, _MAIN] = SamplingInFlight(later, sampling.lane, sampling.rows)
        flight.next_step = later + _IDS_PER_STEP

"""An executor in virtual time: it computes nothing, and says when everything would have ended."""

import numpy as np
from numpy.typing import NDArray

from tandem.cost.lane_work import LaneWork
from tandem.plan.binding import LongArray
from tandem.plan.events import (
    Event,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.plan.program import EventKind, StepProgram
from tandem.planner.fluid.groups import Group
from tandem.planner.fluid.queues import NEVER
from tandem.runtime.executor import Rank
from tandem.simulator.costs import ProgramCosts, ProgramLoad
from tandem.simulator.flying import Flying
from tandem.simulator.program_queues import GroupEnded, ProgramQueues


class SimulatedExecutor:
    """Runs programs on fluid queues.

    Args:
        launch_s: from submission to the earliest start of an operation.
        token_id: what every row samples.

    Attributes:
        now_s: virtual time.
        sweeps: forward programs submitted.
        latest: the last forward program and the last sampling program of it.
    """

    def __init__(
        self,
        costs: ProgramCosts,
        queues: ProgramQueues,
        launch_s: float,
        token_id: int,
    ) -> None:
        self.queues = queues
        self.now_s = 0.0
        self.sweeps = 0
        self.latest: list[Flying] = []
        self._costs, self._launch_s, self._token_id = costs, launch_s, token_id
        self._ids: LongArray = np.zeros(0, dtype=np.int64)
        self._valid = np.zeros(0, dtype=np.bool_)

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Queue a program now."""
        self._enter(
            Flying(
                program.step_id,
                program.template,
                self._costs.schedule(program.template),
                self._costs.load(program),
                program.lanes,
                program.max_join_wait_s,
                program.sampling_lanes,
            )
        )

    def repeat(self, work: LaneWork) -> None:
        """Queue the last sweep once more, with other work, and its sampling."""
        forward, sampling = self.latest
        step, load = sampling.step_id + 1, ProgramLoad.of_one(work)
        self._enter(Flying(step, forward.template, forward.schedule, load))
        again = Flying(step + 1, sampling.template, sampling.schedule, sampling.load)
        again.sampling_lanes = sampling.sampling_lanes
        self._enter(again)

    def _enter(self, flying: Flying) -> None:
        """Queue what is known of a program."""
        if flying.sampling_lanes:
            flying.forward = self.latest[0]
            flying.forward.sampled_by = flying
            self.latest = [flying.forward, flying]
        elif flying.load.lanes:
            self.latest = [flying]
            self.sweeps += 1
        self.queues.submit(flying, self.now_s + self._launch_s)

    def run_until(self, limit_s: float) -> list[Event]:
        """Go on to the next events; if there are none before `limit_s`, to that moment."""
        while ended := self.queues.advance(limit_s):
            self.now_s = self.queues.now_s
            events: list[Event] = []
            for end in ended:
                self._tell(end, events)
            if events:  # what ends of a lane that was left out is none
                return events
        if limit_s < NEVER:
            self.now_s = limit_s
        return []

    def poll(self, *, wait: bool) -> list[Event]:
        """Events that are due; with `wait`, the next ones."""
        return self.run_until(NEVER if wait else self.now_s)

    def release_cohort(self, cohort_id: int) -> None:
        """Forget a finished cohort."""
        self._costs.forget_cohort(cohort_id)
        self.queues.release(cohort_id)

    def close(self) -> None:
        """Nothing is held."""

    # --- events -----------------------------------------------------------------------------------

    def _tell(self, ended: GroupEnded, events: list[Event]) -> None:
        """Add what a group's end is to be told by."""
        flying = ended.flying
        group = flying.schedule.groups[ended.group]
        if group.event is not None:
            events += self._of_group(flying, group, *group.event)
        if ended.complete:
            events.append(StepRetired(flying.step_id))

    def _of_group(
        self, flying: Flying, group: Group, kind: EventKind, lanes: tuple[int, ...]
    ) -> list[Event]:
        step, out = flying.step_id, flying.left_out
        match kind:
            case EventKind.LANE_DONE:
                return [LaneDone(step, lane) for lane in lanes if lane not in out]
            case EventKind.LANE_ADVANCED:
                return [event for lane in lanes for event in _advanced(flying, lane)]
            case EventKind.TRANSFER_DONE:
                # no two copies are alike, so a schedule's operations are the transfers in order
                return [TransferDone(step, flying.load.transfers[group.ops[0][0]].transfer_id)]
            case EventKind.TOKENS:
                return self._tokens(flying, lanes[0])

    def _tokens(self, flying: Flying, lane: int) -> list[Event]:
        assert flying.forward is not None
        if flying.sampling_lanes[lane] in flying.forward.left_out:
            return []
        ids, valid = self._sampled(flying.load.lanes[lane].logits)
        return [TokensSampled(flying.step_id, lane, ids, valid)]

    def _sampled(self, count: int) -> tuple[LongArray, NDArray[np.bool_]]:
        """What so many rows sample, and that it is valid: parts of the same arrays each time."""
        if count > len(self._ids):
            self._ids = np.full(count, self._token_id, dtype=np.int64)
            self._valid = np.ones(count, dtype=np.bool_)
            self._ids.flags.writeable = self._valid.flags.writeable = False
        return self._ids[:count], self._valid[:count]


def _advanced(flying: Flying, lane: int) -> list[LaneAdvanced]:
    """A lane's join has been decided, and those of the same cohort's lanes before it, of which the
    scheduler has not been told yet.
    """
    shapes, told, out = flying.template.lanes, flying.told, flying.left_out
    before: list[int] = []
    at = shapes[lane].after
    while at is not None and shapes[at].cursor is not None and at not in told:
        before.append(at)
        at = shapes[at].after
    before.reverse()
    told.add(lane)
    told.update(before)
    if not out:
        return [LaneAdvanced(flying.step_id, lane, joined=True, before=tuple(before))]
    return [LaneAdvanced(flying.step_id, each, each not in out) for each in (*before, lane)]

"""An executor in virtual time: it computes nothing, and says when everything would have ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tandem.cost.lane_work import LaneWork
from tandem.plan.events import (
    Event,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.plan.program import EventKind, LaneSlot, ProgramTemplate, StepProgram
from tandem.planner.fluid.groups import Group, Schedule
from tandem.planner.fluid.queues import CPU, NEVER, Ended, FluidQueues, Join, Span, Submission, Work
from tandem.runtime.executor import Rank
from tandem.simulator.costs import ProgramCosts, ProgramLoad


@dataclass(slots=True, eq=False)
class Flying:
    """A program in flight.

    Attributes:
        forward: of a sampling program, the one whose logits it reads; `sampled_by` the inverse.
        sampling_lanes: of a sampling program, the forward program's lane of each of its own.
        submission: where it stands in the queues.
    """

    step_id: int
    template: ProgramTemplate
    load: ProgramLoad
    sampling_lanes: tuple[int, ...] = ()
    forward: "Flying | None" = None
    sampled_by: "Flying | None" = None
    submission: Submission | None = None

    @property
    def left_out(self) -> frozenset[int]:
        """Lanes whose joins were refused."""
        return frozenset() if self.submission is None else self.submission.left_out


class SimulatedExecutor:
    """Runs programs on fluid queues.

    Args:
        launch_s: from submission to the earliest start of an operation.
        token_id: what every row samples.
        on_span: told when a group of operations ran.

    Attributes:
        now_s: virtual time.
        sweeps: forward programs submitted.
        latest: the last forward program and the last sampling program of it.
    """

    def __init__(
        self,
        costs: ProgramCosts,
        dram_bytes_per_s: float,
        launch_s: float,
        token_id: int,
        on_span: Callable[[Span], None] | None = None,
    ) -> None:
        self.queues = FluidQueues(dram_bytes_per_s, on_span)
        self.now_s = 0.0
        self.sweeps = 0
        self.latest: list[Flying] = []
        self._costs, self._launch_s, self._token_id = costs, launch_s, token_id
        self._signals: dict[tuple[int, int], int] = {}

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Queue a program now."""
        load = self._costs.load(program)
        flying = Flying(program.step_id, program.template, load, program.sampling_lanes)
        self._enter(flying, program.lanes, program.max_join_wait_s)

    def repeat(self, work: LaneWork) -> None:
        """Queue the last sweep once more, with other work, and its sampling."""
        forward, sampling = self.latest
        again = Flying(sampling.step_id + 1, forward.template, ProgramLoad((work,)))
        self._enter(again)
        lanes = sampling.sampling_lanes
        self._enter(Flying(again.step_id + 1, sampling.template, sampling.load, lanes))

    def _enter(
        self, flying: Flying, slots: tuple[LaneSlot, ...] = (), max_wait_s: float | None = None
    ) -> None:
        """Queue what is known of a program.

        Args:
            slots: of its lanes; none if no cohort takes part.
        """
        if flying.sampling_lanes:
            flying.forward = self.latest[0]
            flying.forward.sampled_by = flying
            self.latest = [flying.forward, flying]
        elif flying.load.lanes:
            self.latest = [flying]
            self.sweeps += 1
        schedule = self._costs.schedule(flying.template)
        flying.submission = Submission(
            schedule,
            partial(self._price, flying, schedule),
            self.now_s + self._launch_s,
            self._joins(schedule, flying.template, slots, max_wait_s),
            schedule.events,
            label=flying,
            alike=self._costs.alike(schedule),
        )
        self.queues.submit(flying.submission)

    def _price(
        self, flying: Flying, schedule: Schedule, left_out: frozenset[int]
    ) -> Sequence[Work]:
        """The works of a program; if lanes are left out of it, they are not sampled either."""
        sampling = flying.sampled_by
        if left_out and sampling is not None and sampling.submission is not None:
            places = enumerate(sampling.sampling_lanes)
            out = frozenset(place for place, lane in places if lane in left_out)
            submission = sampling.submission
            submission.works = self._costs.works(submission.schedule, sampling.load, out)
        return self._costs.works(schedule, flying.load, left_out)

    def _joins(
        self,
        schedule: Schedule,
        template: ProgramTemplate,
        slots: tuple[LaneSlot, ...],
        max_wait_s: float | None,
    ) -> dict[int, Join]:
        """What each join waits for; notes what others will, in this program's order."""
        joins: dict[int, Join] = {}
        base = self.queues.submitted[CPU]
        for index in schedule.cohorts if slots else ():
            group = schedule.groups[index]
            if group.joins is not None:
                slot, shape = slots[group.joins], template.lanes[group.joins]
                bound_s = max_wait_s if shape.guarded else None
                attention = slot.cohort_id, slot.cohort_signal
                joins[index] = Join(group.joins, self._signals[attention], bound_s, attention)
            if group.raises is not None:
                slot = slots[group.raises]
                self.queues.chain.submitted(slot.cohort_id, slot.cohort_signal)
                self._signals[slot.cohort_id, slot.cohort_signal + 1] = base + group.place
        return joins

    def run_until(self, limit_s: float) -> list[Event]:
        """Go on to the next events; if there are none before `limit_s`, to that moment."""
        while ended := self.queues.advance(limit_s):
            self.now_s = self.queues.now_s
            events = [event for end in ended for event in self._events(end)]
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
        for key in [key for key in self._signals if key[0] == cohort_id]:
            del self._signals[key]
        self.queues.chain.forget(cohort_id)

    def close(self) -> None:
        """Nothing is held."""

    # --- events -----------------------------------------------------------------------------------

    def _events(self, ended: Ended) -> list[Event]:
        flying = ended.submission.label
        assert isinstance(flying, Flying)
        found: list[Event] = []
        group = ended.submission.schedule.groups[ended.group]
        if group.event is not None:
            found += self._of_group(flying, group, *group.event)
        if ended.complete:
            found.append(StepRetired(flying.step_id))
        return found

    def _of_group(
        self, flying: Flying, group: Group, kind: EventKind, lanes: tuple[int, ...]
    ) -> list[Event]:
        step, out = flying.step_id, flying.left_out
        match kind:
            case EventKind.LANE_DONE:
                return [LaneDone(step, lane) for lane in lanes if lane not in out]
            case EventKind.LANE_ADVANCED:
                return [LaneAdvanced(step, lane, lane not in out) for lane in lanes]
            case EventKind.TRANSFER_DONE:
                # no two copies are alike, so a schedule's operations are the transfers in order
                return [TransferDone(step, flying.load.transfers[group.ops[0][0]].transfer_id)]
            case EventKind.TOKENS:
                return self._tokens(flying, lanes[0])

    def _tokens(self, flying: Flying, lane: int) -> list[Event]:
        assert flying.forward is not None
        if flying.sampling_lanes[lane] in flying.forward.left_out:
            return []
        count = flying.load.lanes[lane].logits
        ids = np.full(count, self._token_id, dtype=np.int64)
        return [TokensSampled(flying.step_id, lane, ids, np.ones(count, dtype=np.bool_))]

"""An executor that computes nothing and answers at once: what is left is the scheduler's time."""

import numpy as np

from tandem.plan.events import (
    Event,
    LaneAdvanced,
    LaneDone,
    StepRetired,
    TokensSampled,
    TransferDone,
)
from tandem.plan.program import EventKind, PageTransfer, Part, ProgramOp, Queue, StepProgram
from tandem.runtime.executor import Rank


class InstantExecutor:
    """Reports every program as done by the next poll; cohorts are always ready to join.

    Args:
        vocab_size: sampled ids are random below it, and never `eos_id`.
    """

    def __init__(self, vocab_size: int, eos_id: int) -> None:
        self._random = np.random.default_rng(0)
        self._allowed = np.setdiff1d(np.arange(vocab_size), [eos_id])
        self._events: list[Event] = []

    @property
    def rank(self) -> Rank:
        """Alone."""
        return Rank()

    def submit(self, program: StepProgram) -> None:
        """Note the events of all operations, in the template's order."""
        copies = (op for op in program.template.ops if op.part is Part.PAGES)
        pages = {
            (op.queue, op.ordinal): transfer
            for op, transfer in zip(copies, program.transfers, strict=True)
        }
        for op in program.template.ops:
            if op.event is not None:
                self._events += self._events_of(program, op, pages)
        self._events.append(StepRetired(program.step_id))

    def _events_of(
        self, program: StepProgram, op: ProgramOp, pages: dict[tuple[Queue, int], PageTransfer]
    ) -> list[Event]:
        step = program.step_id
        match op.event:
            case EventKind.LANE_DONE:
                return [LaneDone(step, lane) for lane in op.lanes]
            case EventKind.LANE_ADVANCED:
                return [LaneAdvanced(step, lane, True) for lane in op.lanes]
            case EventKind.TRANSFER_DONE:
                return [TransferDone(step, pages[op.queue, op.ordinal].transfer_id)]
            case EventKind.TOKENS:
                return [self._tokens(program, lane) for lane in op.lanes]
        return []

    def _tokens(self, program: StepProgram, lane: int) -> TokensSampled:
        count = len(program.sampling[lane].rows)
        ids = self._random.choice(self._allowed, count)
        return TokensSampled(program.step_id, lane, ids, np.ones(count, dtype=np.bool_))

    def poll(self, *, wait: bool) -> list[Event]:
        """Events of everything submitted since the last call."""
        del wait
        events, self._events = self._events, []
        return events

    def release_cohort(self, cohort_id: int) -> None:
        """There are no buffers."""

    def close(self) -> None:
        """Nothing is in flight."""

"""When operations of programs end, straight from what the programs say: no groups, no sharing.

A queue is in order; an operation starts when it has been launched, the one before it has ended, and
all signals that it waits for have been raised. A guarded join waits for its cohort's signal so long
and no longer; not at all for one that no operation before it raises.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tandem.cost.lane_work import count_work
from tandem.plan.events import Event, LaneAdvanced, LaneDone, StepRetired, TokensSampled
from tandem.plan.program import EventKind, ProgramOp, Queue, StepProgram
from tandem.planner.demand import Demands
from tandem.planner.load import Load
from tandem.simulator.costs import SampledLane


class News(NamedTuple):
    """What is told of a step: nothing but facts that can be compared.

    Attributes:
        lane: -1 of a whole step. count: of sampled rows; of a join, whether it was one.
    """

    kind: str
    step: int
    lane: int = -1
    count: int = -1

    @staticmethod
    def of(event: Event) -> "News":
        """An executor's event."""
        match event:
            case LaneDone(step, lane):
                return News("done", step, lane)
            case LaneAdvanced(step, lane, joined):
                return News("advanced", step, lane, joined)
            case TokensSampled():
                return News("tokens", event.step_id, event.lane, len(event.token_ids))
            case StepRetired(step):
                return News("retired", step)
            case _:
                raise AssertionError(event)


class SignalTimes:
    """Runs programs in the order in which they were submitted.

    Args:
        windows: of each layer of the model.
        launch_s: from submission to the earliest start of an operation.
    """

    def __init__(
        self, demands: Demands, block_size: int, windows: tuple[int, ...], launch_s: float
    ) -> None:
        self._demands, self._size, self._windows = demands, block_size, windows
        self._launch_s = launch_s
        self._ends: dict[Queue, list[float]] = {queue: [] for queue in Queue}
        self._raised: dict[tuple[int, int], float] = {}
        self._refused: dict[int, set[int]] = {}

    def run(self, now_s: float, program: StepProgram) -> Iterator[tuple[News, float]]:
        """All that will be told of it, and when."""
        base = {queue: len(ends) for queue, ends in self._ends.items()}
        works, refused = self._works(program), self._refused_of(program)
        last_s = 0.0
        for op in program.template.ops:
            begin_s = max(now_s + self._launch_s, *self._waited_s(op, base))
            if op.joins is not None:
                begin_s = self._joined_s(program, op.joins, begin_s, refused)
            lanes = [works[lane] for lane in op.lanes if lane not in refused]
            end_s = begin_s + (self._demands.of(op, lanes).alone_s if lanes else 0.0)
            self._ends[op.queue].append(end_s)
            last_s = max(last_s, end_s)
            if op.raises is not None and op.raises not in refused:
                slot = program.lanes[op.raises]
                self._raised[slot.cohort_id, slot.cohort_signal + 1] = end_s
            for news in self._news(program, op, works, refused):
                yield news, end_s
        yield News("retired", program.step_id), last_s

    def _works(self, program: StepProgram) -> Sequence[Load]:
        if program.sampling:
            return [SampledLane(len(rows.rows)) for rows in program.sampling]
        return [count_work(slot.binding, self._size, self._windows) for slot in program.lanes]

    def _refused_of(self, program: StepProgram) -> set[int]:
        """Of a sampling program, its own numbers of the lanes that were."""
        if program.sampling:
            forward = self._refused[program.forward_step]
            return {i for i, lane in enumerate(program.sampling_lanes) if lane in forward}
        return self._refused.setdefault(program.step_id, set())

    def _waited_s(self, op: ProgramOp, base: dict[Queue, int]) -> Iterator[float]:
        yield from self._ends[op.queue][-1:]
        for wait in op.waits:
            count = base[wait.queue] + wait.ordinal
            if count > 0:
                yield self._ends[wait.queue][count - 1]
        yield 0.0

    def _joined_s(
        self, program: StepProgram, lane: int, ready_s: float, refused: set[int]
    ) -> float:
        slot = program.lanes[lane]
        raised_s = self._raised.get((slot.cohort_id, slot.cohort_signal))
        if raised_s is None:  # nobody will: who should have was refused
            refused.add(lane)
            return ready_s
        guarded, wait_s = program.template.lanes[lane].guarded, program.max_join_wait_s
        if guarded and wait_s is not None and raised_s > ready_s + wait_s:
            refused.add(lane)
            return ready_s + wait_s
        return max(ready_s, raised_s)

    def _news(
        self, program: StepProgram, op: ProgramOp, works: Sequence[Load], refused: set[int]
    ) -> Iterator[News]:
        step = program.step_id
        for lane in op.lanes:
            there = lane not in refused
            if op.event is EventKind.LANE_ADVANCED:
                yield News("advanced", step, lane, there)
            elif op.event is EventKind.LANE_DONE and there:
                yield News("done", step, lane)
            elif op.event is EventKind.TOKENS and there:
                yield News("tokens", step, lane, works[lane].logits)

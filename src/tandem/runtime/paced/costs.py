"""Durations of a program's operations, and the host work that is done for real."""

from dataclasses import dataclass

from tandem.cost.stage import partial_bytes, staged_qkv_bytes, token_bytes
from tandem.memory.page import KVPageSpec
from tandem.plan.program import LaneSlot, OpKind, Part, ProgramOp, StepProgram
from tandem.runtime.lane_context import TierContext
from tandem.runtime.paced.host import PacedHost
from tandem.runtime.paced.ledger import HostTask, Span
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.paced.truth import PacedTruth
from tandem.runtime.paced.work import LaneWork, count_work
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class PacedLane:
    """A lane's work; `host` is None if the host has none to do, or is to skip it."""

    slot: LaneSlot
    work: LaneWork
    host: TierContext | None


class PacedCosts:
    """Knows what every operation moves and computes.

    Args:
        truth: durations of device operations.
        host: executes host operations.
    """

    def __init__(
        self, model: ModelSpec, page: KVPageSpec, truth: PacedTruth, host: PacedHost
    ) -> None:
        self._model, self._page, self._truth, self._host = model, page, truth, host
        self._cohorts: dict[int, PacedLane] = {}

    def prepare(self, program: StepProgram, *, skip: bool) -> tuple[PacedLane, ...]:
        """Count the work of a program's lanes; a cohort's once per token.

        Args:
            skip: the host's operations are not to be executed.
        """
        return tuple(self._lane(program, index, skip) for index in range(len(program.lanes)))

    def _lane(self, program: StepProgram, index: int, skip: bool) -> PacedLane:
        slot, shape = program.lanes[index], program.template.lanes[index]
        known = self._cohorts.get(slot.cohort_id) if slot.cohort_id else None
        if known is not None and known.slot.binding is slot.binding:
            return known
        work = count_work(slot.binding, self._page.block_size, self._model.layer_windows)
        hosted = shape.host and not skip
        lane = PacedLane(slot, work, self._host.prepare(slot.binding) if hosted else None)
        if slot.cohort_id:
            self._cohorts[slot.cohort_id] = lane
        return lane

    def forget_cohort(self, cohort_id: int) -> None:
        """Drop a finished cohort's arrays."""
        self._cohorts.pop(cohort_id, None)

    # --- device operations ------------------------------------------------------------------------

    def cost_s(self, program: PacedProgram, op: ProgramOp, active: tuple[int, ...]) -> float:
        """Duration of a device operation."""
        if op.kind is OpKind.LOAD:
            return self._truth.load_s()
        if op.part is Part.PAGES:
            return self._truth.transfer_s(op, program.pages[(op.queue, op.ordinal)])
        if program.program.sampling:
            return self._truth.sample_s(op, self._sampled_rows(program, active))
        return self._truth.compute_s(op, [lane.work for lane in _lanes(program, active)])

    def copied_bytes(self, span: Span) -> float:
        """Bytes that a copy moves; 0 for other operations."""
        op, program = span.entry.op, span.entry.program
        if op.kind is OpKind.LOAD:
            return self._truth.load_bytes
        if op.kind is not OpKind.COPY:
            return 0.0
        if op.part is Part.PAGES:
            blocks = len(program.pages[(op.queue, op.ordinal)].source_blocks)
            return blocks * self._page.bytes_per_block
        active = program.active(op)
        if op.part is Part.TOKENS:
            return token_bytes(self._sampled_rows(program, active))
        works = [lane.work for lane in _lanes(program, active)]
        queries = sum(work.attention(Tier.HOST, op.layer).tokens for work in works)
        if op.part is Part.PARTIAL:
            return partial_bytes(self._model, queries)
        appended = sum(work.appended[Tier.HOST] for work in works)
        return staged_qkv_bytes(self._model, queries, appended, self._page.float_type)

    @staticmethod
    def _sampled_rows(program: PacedProgram, active: tuple[int, ...]) -> int:
        return sum(len(program.program.sampling[lane].rows) for lane in active)

    # --- host operations --------------------------------------------------------------------------

    def has_work(self, task: HostTask) -> bool:
        """True if any lane that takes part has something for the host to do."""
        active = task.entry.program.active(task.entry.op)
        return any(lane.host is not None for lane in _lanes(task.entry.program, active))

    def run(self, task: HostTask) -> None:
        """Execute a host operation."""
        op, program = task.entry.op, task.entry.program
        lanes = _lanes(program, program.active(op))
        self._host.run(op, [lane.host for lane in lanes if lane.host is not None])

    def read_bytes(self, task: HostTask) -> int:
        """Bytes of keys and values that a host operation reads."""
        op, program = task.entry.op, task.entry.program
        if op.kind is not OpKind.ATTEND:
            return 0
        lanes = _lanes(program, program.active(op))
        keys = sum(lane.work.attention(Tier.HOST, op.layer).keys for lane in lanes)
        return keys * self._page.bytes_per_block_layer // self._page.block_size


def _lanes(program: PacedProgram, active: tuple[int, ...]) -> list[PacedLane]:
    lanes: list[PacedLane] = []
    for index in active:
        lane = program.lanes[index]
        assert isinstance(lane, PacedLane)
        lanes.append(lane)
    return lanes

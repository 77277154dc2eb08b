"""Durations of a program's operations, and the host work that is done for real."""

from collections.abc import Hashable
from dataclasses import dataclass

from tandem.cost.lane_work import LaneWork, count_work
from tandem.cost.passing_work import PassingWork, count_passing
from tandem.cost.stage import token_bytes
from tandem.memory.page import KVPageSpec
from tandem.plan.program import LaneSlot, OpKind, Part, ProgramOp, StepProgram
from tandem.runtime.lane_context import TierContext
from tandem.runtime.paced.host import PacedHost
from tandem.runtime.paced.host_layers import PacedHostLayers
from tandem.runtime.paced.ledger import Entry, HostTask
from tandem.runtime.paced.passing_truth import PASSING_COPIES
from tandem.runtime.paced.program import PacedProgram
from tandem.runtime.paced.truth import PacedTruth
from tandem.runtime.paced.types import PacedTypes
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class PacedLane:
    """A lane's work; `host` is None if the host tier has none of it, or is to skip it.

    Attributes:
        skip: the host's operations are not to be executed.
        passing: of blocks, the part whose KV passes through the accelerator.
    """

    slot: LaneSlot
    work: LaneWork
    host: TierContext | None
    skip: bool
    passing: PassingWork | None = None


class PacedCosts:
    """Knows what every operation moves and computes.

    Args:
        truth: durations of device operations.
        host: executes appends and attention on the host.
        layers: executes layers on the CPU, if any ever are.
        types: what is in few bits; None: nothing.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        truth: PacedTruth,
        host: PacedHost,
        layers: PacedHostLayers | None = None,
        types: PacedTypes | None = None,
    ) -> None:
        self._model, self._page, self._truth, self._host = model, page, truth, host
        self._layers = layers
        coded = frozenset[int]() if types is None else frozenset(types.layers)
        dense = frozenset(model.dense_layers)
        self._layer_kinds = tuple(
            (window, i in dense, i in coded, truth.comes_in_part(i))
            for i, window in enumerate(model.layer_windows)
        )
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
        size, windows = self._page.block_size, self._model.layer_windows
        host = self._host.prepare(slot.binding) if shape.host and not skip else None
        passing = count_passing(slot.passing, size, windows)
        lane = PacedLane(slot, count_work(slot.binding, size, windows), host, skip, passing)
        if slot.cohort_id:
            self._cohorts[slot.cohort_id] = lane
        return lane

    def forget_cohort(self, cohort_id: int) -> None:
        """Drop a finished cohort's arrays."""
        self._cohorts.pop(cohort_id, None)

    # --- device operations ------------------------------------------------------------------------

    def layer_kind(self, layer: int) -> Hashable:
        """Layers of one kind cost the same."""
        return self._layer_kinds[layer] if 0 <= layer < len(self._layer_kinds) else None

    def cost_s(self, program: PacedProgram, op: ProgramOp, active: tuple[int, ...]) -> float:
        """Duration of a device operation."""
        if op.kind is OpKind.LOAD:
            return self._truth.load_s(op)
        if op.kind is OpKind.READ:
            return self._truth.read_s(op)
        if op.part is Part.PAGES:
            return self._truth.transfer_s(op, program.pages[(op.queue, op.ordinal)])
        if op.kind is OpKind.SAMPLE or op.part is Part.TOKENS:
            return self._truth.sample_s(op, self._sampled_rows(program, active))
        lanes = _lanes(program, active)
        return self._truth.compute_s(op, [lane.work for lane in lanes], _passing(lanes))

    def moved_bytes(self, entry: Entry) -> float:
        """Bytes that a copy or a read moves; 0 for other operations."""
        op, program = entry.op, entry.program
        if op.kind in (OpKind.LOAD, OpKind.READ):
            return self._truth.weight_bytes(op)
        if op.kind is not OpKind.COPY:
            return 0.0
        if op.part is Part.PAGES:
            blocks = len(program.pages[(op.queue, op.ordinal)].source_blocks)
            return blocks * self._page.bytes_per_block
        active = program.active(op)
        if op.part is Part.TOKENS:
            return token_bytes(self._sampled_rows(program, active))
        lanes = _lanes(program, active)
        if op.part in PASSING_COPIES:
            return self._truth.passing_bytes(op, _passing(lanes))
        return self._truth.staged_bytes(op, [lane.work for lane in lanes])

    @staticmethod
    def _sampled_rows(program: PacedProgram, active: tuple[int, ...]) -> int:
        return sum(len(program.program.sampling[lane].rows) for lane in active)

    # --- host operations --------------------------------------------------------------------------

    def has_work(self, entry: Entry) -> bool:
        """True if any lane that takes part has something for the host to do."""
        op, program = entry.op, entry.program
        lanes = _lanes(program, program.active(op))
        if _is_of_layer(op):
            return any(not lane.skip for lane in lanes)
        return any(lane.host is not None for lane in lanes)

    def run(self, task: HostTask) -> None:
        """Execute a host operation."""
        op, program = task.entry.op, task.entry.program
        lanes = _lanes(program, program.active(op))
        if _is_of_layer(op):
            assert self._layers is not None
            tiers = max(_tiers(program, index) for index in program.active(op))
            self._layers.run(op, sum(lane.work.tokens for lane in lanes), tiers)
            return
        self._host.run(op, [lane.host for lane in lanes if lane.host is not None])

    def read_bytes(self, task: HostTask) -> float:
        """What a host operation reads: keys and values, or weights and activations; 0: it is not
        counted.
        """
        op, program = task.entry.op, task.entry.program
        lanes = _lanes(program, program.active(op))
        if op.kind is OpKind.STAGE:
            return self._truth.host_stage_bytes(op, sum(lane.work.tokens for lane in lanes))
        if op.kind is not OpKind.ATTEND:
            return 0
        keys = sum(lane.work.attention(Tier.HOST, op.layer).keys for lane in lanes)
        page = self._page.on(Tier.HOST)
        return keys * page.bytes_per_block_layer // page.block_size


def _is_of_layer(op: ProgramOp) -> bool:
    """Of a layer on the CPU, other than its part of attention."""
    return op.kind in (OpKind.STAGE, OpKind.MERGE)


def _tiers(program: PacedProgram, lane: int) -> int:
    shape = program.program.template.lanes[lane]
    return int(shape.device) + int(shape.host)


def _lanes(program: PacedProgram, active: tuple[int, ...]) -> list[PacedLane]:
    lanes: list[PacedLane] = []
    for index in active:
        lane = program.lanes[index]
        assert isinstance(lane, PacedLane)
        lanes.append(lane)
    return lanes


def _passing(lanes: list[PacedLane]) -> list[PassingWork]:
    return [lane.passing for lane in lanes if lane.passing is not None]

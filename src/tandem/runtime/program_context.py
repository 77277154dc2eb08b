"""What is known about a submitted program while its operations run."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from tandem.kernels.tier_kernels import MergingKernels, TierKernels
from tandem.plan.events import StepTimes
from tandem.plan.program import (
    LaneSlot,
    OpKind,
    PageTransfer,
    Part,
    ProgramOp,
    Queue,
    StepProgram,
)
from tandem.runtime.lane_context import LaneContext, make_context
from tandem.runtime.staging import StagingShape
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.plan.executed_op import ExecutedOp
    from tandem.runtime.decode_graphs import DecodeGraphs
    from tandem.runtime.hybrid_graphs import HybridGraphs


@dataclass(slots=True)
class StepStamps:
    """Collects a program's `StepTimes` while its operations end, in whatever order."""

    submitted_s: float = 0.0
    start_s: float = math.inf
    end_s: float = -math.inf
    busy_s: dict[tuple[Queue, OpKind], float] = field(default_factory=dict)

    def ran(self, op: ProgramOp, start_s: float, end_s: float) -> None:
        """An operation has ended."""
        self.start_s = min(self.start_s, start_s)
        self.end_s = max(self.end_s, end_s)
        key = (op.queue, op.kind)
        self.busy_s[key] = self.busy_s.get(key, 0.0) + (end_s - start_s)

    def times(self) -> StepTimes | None:
        """What was collected; None if nothing was."""
        if self.start_s > self.end_s:
            return None
        return StepTimes(self.submitted_s, self.start_s, self.end_s, self.busy_s)


@dataclass(slots=True)
class ProgramContext:
    """A program in flight.

    Attributes:
        lanes: contexts of the template's lanes (empty for transfers).
        guards: decided joins: lane index -> joined. A lane that is not in it takes part.
        forward: for sampling programs, the context whose guards apply; see `sampled`.
        pages: payload of each PAGES copy, by (queue, ordinal).
        base: operations submitted to each queue before this program's.
        remaining: operations that have not been reported.
        stamps: when they ran, where the executor says.
    """

    program: StepProgram
    lanes: list[LaneContext]
    guards: dict[int, bool] = field(default_factory=dict)
    forward: "ProgramContext | None" = None
    pages: dict[tuple[str, int], PageTransfer] = field(default_factory=dict)
    base: dict[Queue, int] = field(default_factory=lambda: dict.fromkeys(Queue, 0))
    remaining: int = 0
    stamps: StepStamps = field(default_factory=StepStamps)

    @property
    def sampled(self) -> "ProgramContext":
        """The context that has the logits: a block's program samples its own."""
        return self if self.forward is None else self.forward

    def active(self, op: ProgramOp) -> tuple[int, ...]:
        """Lanes of an operation whose guards did not fail."""
        guards = self.guards
        if not guards:
            return op.lanes
        return tuple(lane for lane in op.lanes if guards.get(lane, True))

    def executed(
        self, op: ProgramOp, start_s: float, end_s: float, num_layers: int = 0
    ) -> "ExecutedOp":
        """What listeners are told of an operation that has ended."""
        from tandem.plan.executed_op import ExecutedOp

        submitted_s = self.stamps.submitted_s
        return ExecutedOp(
            op, self.program, self.active(op), submitted_s, start_s, end_s, num_layers
        )


class ContextCache:
    """Makes contexts; a cohort's is made once per token and shared by its sweeps.

    Args:
        windows: of each layer of the model.
        slot_kernels: of KV that passes through the accelerator; None: none does.

    Attributes:
        graphs, hybrid: make one operation of programs that they can launch as one, the latter two
            where the host has a part; None: there are none.
    """

    def __init__(
        self,
        device: torch.device,
        kernels: dict[Tier, TierKernels],
        windows: tuple[int, ...],
        staging: StagingShape,
        slot_kernels: TierKernels | None = None,
    ) -> None:
        self._device = device
        self._kernels = kernels
        self._windows = windows
        self._staging = staging
        self._slot_kernels = slot_kernels
        # blocks merge what lies in slots by operations of their own
        self._merges = slot_kernels is None and isinstance(kernels[Tier.DEVICE], MergingKernels)
        self._cohorts: dict[int, LaneContext] = {}
        self._last_forward: ProgramContext | None = None
        self.graphs: DecodeGraphs | None = None
        self.hybrid: HybridGraphs | None = None

    def make(self, program: StepProgram) -> ProgramContext:
        """Context of a program that is being submitted; its `program` is what is to be run."""
        if program.sampling and not program.lanes:
            return self._sampling(program)
        launched_as_one = self._as_one(program)
        if launched_as_one is not None:
            self._last_forward = launched_as_one
            return launched_as_one
        # batches of a block that have no sequences are left out
        empty = (i for i, slot in enumerate(program.lanes) if not slot.binding.num_tokens)
        context = ProgramContext(
            program,
            [self._lane(program, i) for i in range(len(program.lanes))],
            dict.fromkeys(empty, False),
        )
        if program.transfers:  # few programs have any, all have many operations
            copies = [op for op in program.template.ops if op.part is Part.PAGES]
            context.pages = {
                (op.queue, op.ordinal): transfer
                for op, transfer in zip(copies, program.transfers, strict=True)
            }
        if program.lanes:
            self._last_forward = context
        return context

    def _as_one(self, program: StepProgram) -> ProgramContext | None:
        if not program.lanes:
            return None
        taken = None if self.graphs is None else self.graphs.take(program)
        if taken is None and self.hybrid is not None:
            taken = self.hybrid.take(program)
        return taken

    def _lane(self, program: StepProgram, index: int) -> LaneContext:
        slot = program.lanes[index]
        if slot.cohort_id == 0:
            return self._make(slot)
        known = self._cohorts.get(slot.cohort_id)
        if known is not None and known.slot.binding is slot.binding:
            return replace(known, slot=slot)
        made = self._make(slot)
        self._cohorts[slot.cohort_id] = made
        return made

    def _make(self, slot: LaneSlot) -> LaneContext:
        return make_context(
            slot,
            self._device,
            self._kernels,
            self._windows,
            self._staging,
            self._slot_kernels,
            merges=self._merges,
        )

    def _sampling(self, program: StepProgram) -> ProgramContext:
        forward = self._last_forward
        if forward is None or forward.program.step_id != program.forward_step:
            raise ValueError(
                f"logits of step {program.forward_step} are gone: sample before the next step"
            )
        return ProgramContext(program, [], forward=forward)

    def forget_cohort(self, cohort_id: int) -> None:
        """Drop a finished cohort's arrays."""
        self._cohorts.pop(cohort_id, None)

"""A program in flight on the paced emulator."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from tandem.plan.executed_op import ExecutedOp
from tandem.plan.program import PageTransfer, Part, ProgramOp, Queue, StepProgram
from tandem.runtime.program_context import StepStamps

CostOf = Callable[[ProgramOp, tuple[int, ...]], float]


@dataclass(slots=True)
class PacedProgram:
    """A submitted program, and what becomes known of it.

    Attributes:
        base: operations per queue submitted before it.
        submitted_s: when it was submitted.
        launch_s: earliest start of an operation after submission.
        cost_s: duration of a device operation given the lanes that take part.
        lanes: what the host's operations need of each lane (opaque here).
        guards: decided joins: lane -> joined. Lanes not in it take part. Of blocks, lanes without
            sequences do not.
        forward: for sampling programs, the program whose logits and guards they use; see `sampled`.
        remaining: operations whose end is not known; `end_s` the latest known one.
        stamps: the known ones' times.
        retired: its end has been reported.
        layer_kind: of a layer; those of one kind cost the same.
    """

    program: StepProgram
    base: dict[Queue, int]
    submitted_s: float
    launch_s: float
    cost_s: CostOf
    lanes: tuple[object, ...] = ()
    guards: dict[int, bool] = field(default_factory=dict[int, bool])
    forward: "PacedProgram | None" = None
    pages: dict[tuple[Queue, int], PageTransfer] = field(
        default_factory=dict[tuple[Queue, int], PageTransfer]
    )
    remaining: int = 0
    end_s: float = 0.0
    stamps: StepStamps = field(default_factory=StepStamps)
    retired: bool = False
    layer_kind: Callable[[int], Hashable] = lambda _: None
    _costs: dict[Hashable, float] = field(default_factory=dict[Hashable, float])

    def __post_init__(self) -> None:
        self.remaining = len(self.program.template.ops)
        self.stamps.submitted_s = self.submitted_s
        copies = [op for op in self.program.template.ops if op.part is Part.PAGES]
        transfers = zip(copies, self.program.transfers, strict=True)
        self.pages = {(op.queue, op.ordinal): transfer for op, transfer in transfers}

    @property
    def sampled(self) -> "PacedProgram":
        """The program that has the logits: a block's samples its own."""
        return self if self.forward is None else self.forward

    def active(self, op: ProgramOp) -> tuple[int, ...]:
        """Lanes of an operation whose guards did not fail."""
        forward, sampled = self.forward, self.program.sampling_lanes
        if forward is not None:
            return tuple(i for i in op.lanes if forward.guards.get(sampled[i], True))
        if not self.guards:
            return op.lanes
        return tuple(i for i in op.lanes if self.guards.get(i, True))

    def executed(self, op: ProgramOp, start_s: float, end_s: float) -> ExecutedOp:
        """What listeners are told of an operation whose end is known."""
        return ExecutedOp(op, self.program, self.active(op), self.submitted_s, start_s, end_s)

    def duration_s(self, op: ProgramOp) -> float:
        """Cost of a device operation; many layers are alike, so it is computed once per kind."""
        active = self.active(op)
        if op.lanes and not active:
            return 0.0
        key = (
            op.queue,
            op.kind,
            op.part,
            op.tier,
            self.layer_kind(op.layer),
            active,
            op.ordinal if op.part is Part.PAGES else 0,
        )
        if key not in self._costs:
            self._costs[key] = self.cost_s(op, active)
        return self._costs[key]

"""What templates are made with: buffers' names, and operations numbered per queue."""

from collections import defaultdict
from dataclasses import dataclass, field

from tandem.plan.program import (
    BufferRef,
    EventKind,
    LaneShape,
    OpKind,
    Part,
    ProgramOp,
    ProgramTemplate,
    Queue,
    SignalRef,
    buffer,
    signal,
)
from tandem.spec.tier import Tier

STATE, QKV, LOGITS, SLOTS, SAMPLED, TOKENS = (
    "state", "qkv", "logits", "slots", "sampled", "tokens",
)  # fmt: skip
DEVICE_PARTIAL, HOST_PARTIAL, STAGED_PARTIAL, HOST_QKV = (
    "device_partial", "host_partial", "staged_partial", "host_qkv",
)  # fmt: skip
# what the accelerator's experts of a layer add to the residual, while others are the CPU's
EXPERT_SUM = "expert_sum"
# likewise of an MLP divided by columns
COLUMN_SUM = "column_sum"
# the CPU's columns of such a layer whose residual is the CPU's, the accelerator's brought there,
# and the residual on its way to where those are made
HOST_COLUMNS, FETCHED_COLUMNS, STAGED_INPUT = "host_columns", "fetched_columns", "staged_input"
WEIGHTS = "weights"
# of a layer that comes in parts
PARTS_OF_WEIGHTS = {
    part: f"weights.{part}"
    for part in (Part.KEYS_VALUES, Part.QUERIES, Part.PRE, Part.POST, Part.CPU_COLUMNS)
}
HOST_WEIGHTS = "host_weights"
# of layers on the CPU: the residual there and on its way back, q, k and v on their way to the
# accelerator's part of attention, and that part's result
HOST_STATE, STAGED_STATE, STAGED_QKV, FETCHED_PARTIAL = (
    "host_state", "staged_state", "staged_qkv", "fetched_partial",
)  # fmt: skip


def pages(tier: Tier, layer: int) -> BufferRef:
    """The KV pages of one layer in one tier (layer -1: of all layers)."""
    return buffer(f"pages.{tier.label}", -1, layer)


def streamed_weights(layer: int, part: Part = Part.NONE) -> BufferRef:
    """A streamed layer's bytes in whichever slot, or a part of them; a load makes them and takes
    another's place.
    """
    return buffer(PARTS_OF_WEIGHTS.get(part, WEIGHTS), -1, layer)


@dataclass(slots=True)
class TemplateBuilder:
    """Collects operations and numbers them per queue."""

    ops: list[ProgramOp] = field(default_factory=list[ProgramOp])
    counts: dict[Queue, int] = field(default_factory=lambda: defaultdict(int))

    def add(
        self,
        kind: OpKind,
        queue: Queue,
        part: Part = Part.NONE,
        *,
        lanes: tuple[int, ...] = (),
        layer: int = -1,
        waits: tuple[SignalRef, ...] = (),
        reads: tuple[BufferRef, ...] = (),
        writes: tuple[BufferRef, ...] = (),
        tier: Tier | None = None,
        joins: int | None = None,
        event: EventKind | None = None,
        raises: int | None = None,
    ) -> SignalRef:
        """Append an operation; returns the signal value that it raises."""
        self.counts[queue] += 1
        ordinal = self.counts[queue]
        op = ProgramOp(
            kind, queue, part, lanes, layer, ordinal, waits, reads, writes,
            tier, joins, event, raises,
        )  # fmt: skip
        self.ops.append(op)
        return signal(queue, ordinal)

    def reached(self, queue: Queue) -> SignalRef:
        """The queue has done all that was added to it so far."""
        return signal(queue, self.counts.get(queue, 0))

    def build(self, name: str, lanes: tuple[LaneShape, ...]) -> ProgramTemplate:
        """All that was added, in order."""
        return ProgramTemplate(name, lanes, tuple(self.ops), tuple(self.counts.items()))

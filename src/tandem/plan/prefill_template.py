"""A block's first pass, over all prompts: keys and values drain to the host behind the maths.

Each batch goes through a layer at once. The planner prices a batch's prompts as one, in parts of a
step's size, which no other queue sees; for an engine, each part is a batch of this template (ADR
0026). Weights come a layer ahead.
"""

from tandem.plan.block_parts import WeightTurns, sample_batch
from tandem.plan.block_shape import (
    CACHE_SLOTS,
    BlockShape,
    batch_pages,
    prefix_pages,
    streamed_pages,
)
from tandem.plan.program import (
    BufferRef,
    OpKind,
    Part,
    ProgramTemplate,
    Queue,
    SignalRef,
    buffer,
    signal,
)
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    HOST_STATE,
    QKV,
    SLOTS,
    STATE,
    TemplateBuilder,
)
from tandem.spec.tier import Tier

PROMPTS = "prefill"
"""Name of these templates."""


def prefill_template(shape: BlockShape) -> ProgramTemplate:
    """The prompts of a block of that shape, up to their first tokens."""
    return _PrefillBuilder(shape).build()


class _PrefillBuilder:
    """Emits the operations; activations and what drains take turns in a few slots."""

    def __init__(self, shape: BlockShape) -> None:
        self._shape = shape
        self._b = TemplateBuilder()
        # by slot: what was in it has left; copies to the host leave in order
        self._drained: dict[int, SignalRef] = {}
        # by batch: its activations are on the host
        self._parked: dict[int, SignalRef] = {}
        self._weights = WeightTurns(self._b, shape, shape.over_prompts)

    def build(self) -> ProgramTemplate:
        for layer in range(self._shape.num_layers):
            for batch in range(self._shape.batches):
                self._through(layer, batch)
            self._weights.used(layer, Part.PRE)
            self._weights.used(layer, Part.POST)
        return self._b.build(PROMPTS, self._shape.lanes)

    def _through(self, layer: int, batch: int) -> None:
        shape, lanes = self._shape, (batch,)
        slot = (layer * shape.batches + batch) % CACHE_SLOTS
        qkv, state = buffer(QKV, -1, slot), self._state(batch, slot)
        arrived = self._enter(layer, batch, slot, state)
        weights = self._weights
        free = self._drained.get(slot, signal(Queue.D2H, 0))
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.PRE, lanes=lanes, layer=layer,
            waits=(*weights.there(layer, Part.PRE), *arrived, free),
            reads=(state, *weights.slot(layer, Part.PRE)), writes=(qkv,),
        )  # fmt: skip
        kept = (batch_pages(Tier.DEVICE, batch, layer),) if shape.resident else ()
        self._b.add(
            OpKind.APPEND, Queue.ACCEL, lanes=lanes, layer=layer, tier=Tier.DEVICE,
            reads=(qkv,), writes=kept,
        )  # fmt: skip
        attended = self._b.add(
            OpKind.ATTEND, Queue.ACCEL, lanes=lanes, layer=layer, tier=Tier.DEVICE,
            reads=(qkv,), writes=(buffer(DEVICE_PARTIAL),),
        )  # fmt: skip
        stored = self._drain(layer, batch, slot, attended, state)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.POST, lanes=lanes, layer=layer,
            waits=(*weights.there(layer, Part.POST), *stored),
            reads=(state, buffer(DEVICE_PARTIAL), *weights.slot(layer, Part.POST)),
            writes=(state,),
        )  # fmt: skip
        self._leave(layer, batch, slot, state)

    def _state(self, batch: int, slot: int) -> BufferRef:
        """Activations of a batch: in place, or on their way through."""
        return buffer(STATE, -1, slot) if self._shape.prompts_on_host else buffer(STATE, batch)

    def _enter(self, layer: int, batch: int, slot: int, state: BufferRef) -> tuple[SignalRef, ...]:
        if layer == 0:
            free = self._drained.get(slot, signal(Queue.D2H, 0))
            before = signal(Queue.H2D, 0)  # loads ahead, of the block before
            self._b.add(
                OpKind.STAGE, Queue.ACCEL, Part.EMBED, lanes=(batch,), layer=0,
                waits=(free, before), reads=(buffer(SLOTS),), writes=(state,),
            )  # fmt: skip
        elif self._shape.prompts_on_host:
            came = self._b.add(
                OpKind.COPY, Queue.H2D, Part.RESIDUAL, lanes=(batch,), layer=layer,
                waits=(self._parked[batch], self._drained.get(slot, signal(Queue.D2H, 0))),
                reads=(buffer(HOST_STATE, batch),), writes=(state,),
            )  # fmt: skip
            return (came,)
        return ()

    def _drain(
        self, layer: int, batch: int, slot: int, ready: SignalRef, state: BufferRef
    ) -> tuple[SignalRef, ...]:
        """Keys and values that lie on the host, and the activations of those that do not.

        Returns: when the activations may change.
        """
        shape, lanes = self._shape, (batch,)
        stored: tuple[SignalRef, ...] = ()
        if shape.recomputes:
            stored = (
                self._b.add(
                    OpKind.COPY, Queue.D2H, Part.PREFIX, lanes=lanes, layer=layer, waits=(ready,),
                    reads=(state,), writes=(prefix_pages(batch, layer),),
                ),
            )  # fmt: skip
        if shape.streamed or shape.cpu:
            homes = (streamed_pages(batch, layer),) if shape.streamed else ()
            homes += (batch_pages(Tier.HOST, batch, layer),) if shape.cpu else ()
            self._drained[slot] = self._b.add(
                OpKind.COPY, Queue.D2H, Part.CACHE, lanes=lanes, layer=layer, waits=(ready,),
                reads=(buffer(QKV, -1, slot),), writes=homes,
            )  # fmt: skip
        return stored

    def _leave(self, layer: int, batch: int, slot: int, state: BufferRef) -> None:
        shape, lanes = self._shape, (batch,)
        if layer == shape.num_layers - 1:
            self._drained[slot] = sample_batch(self._b, shape, batch, state)
        elif shape.prompts_on_host:
            self._parked[batch] = self._drained[slot] = self._b.add(
                OpKind.COPY, Queue.D2H, Part.RESIDUAL, lanes=lanes, layer=layer,
                waits=(self._b.reached(Queue.ACCEL),), reads=(state,),
                writes=(buffer(HOST_STATE, batch),),
            )  # fmt: skip

"""Build program templates: one sweep over the layers, a sampling program, page transfers."""

from collections import defaultdict
from collections.abc import Callable
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
)
from tandem.plan.weights import StreamedLayers
from tandem.spec.tier import Tier

STATE, QKV, ATTENTION, LOGITS, SLOTS, SAMPLED, TOKENS = (
    "state", "qkv", "attention", "logits", "slots", "sampled", "tokens",
)  # fmt: skip
DEVICE_PARTIAL, HOST_PARTIAL, STAGED_PARTIAL, HOST_QKV = (
    "device_partial", "host_partial", "staged_partial", "host_qkv",
)  # fmt: skip
WEIGHTS = "weights"


def pages(tier: Tier, layer: int) -> BufferRef:
    """The KV pages of one layer in one tier (layer -1: of all layers)."""
    return BufferRef(f"pages.{tier.label}", -1, layer)


def weight_slot(slot: int) -> BufferRef:
    """Accelerator memory of one streamed layer at a time."""
    return BufferRef(WEIGHTS, -1, slot)


@dataclass(slots=True)
class _Builder:
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
    ) -> SignalRef:
        """Append an operation; returns the signal value that it raises."""
        self.counts[queue] += 1
        ordinal = self.counts[queue]
        op = ProgramOp(
            kind, queue, part, lanes, layer, ordinal, waits, reads, writes, tier, joins, event
        )
        self.ops.append(op)
        return SignalRef(queue, ordinal)

    def build(self, name: str, lanes: tuple[LaneShape, ...]) -> ProgramTemplate:
        return ProgramTemplate(name, lanes, tuple(self.ops), tuple(self.counts.items()))


def sweep_template(
    num_layers: int, lanes: tuple[LaneShape, ...], streamed: StreamedLayers | None = None
) -> ProgramTemplate:
    """One pass of the accelerator over all layers.

    Lanes that run through are processed together in every layer; a cohort takes part in the POST of
    its cursor's layer and in the PRE that follows, and leaves its host attention running.
    """
    return _SweepBuilder(num_layers, lanes, streamed or StreamedLayers()).build()


class _SweepBuilder:
    """Emits the operations of a sweep layer by layer."""

    def __init__(
        self, num_layers: int, lanes: tuple[LaneShape, ...], streamed: StreamedLayers
    ) -> None:
        self._layers = num_layers
        self._lanes = lanes
        self._streamed = streamed
        self._b = _Builder()
        # of the first layers, the sweep before brings the weights
        self._loaded = {
            layer: SignalRef(Queue.WEIGHTS, i + 1 - streamed.slots)
            for i, layer in enumerate(streamed.layers[: streamed.slots])
        }
        self._merged: dict[int, SignalRef] = {}

    def build(self) -> ProgramTemplate:
        entering = self._select(lambda lane: lane.cursor is None)
        if entering:
            self._embed(entering)
        for layer in range(self._layers):
            before = entering if layer == 0 else self._in_pre(layer)
            if before:
                self._pre(layer, before)
            joined = self._in_post(layer)
            if joined:
                self._post(layer, joined)
            if layer in self._streamed.layers:
                self._refill(layer)
        self._heads()
        return self._b.build("sweep", self._lanes)

    def _select(self, test: Callable[[LaneShape], bool]) -> tuple[int, ...]:
        return tuple(i for i, lane in enumerate(self._lanes) if test(lane))

    def _in_pre(self, layer: int) -> tuple[int, ...]:
        """Lanes in PRE of `layer` > 0: those running through, those that just joined."""
        return self._select(
            lambda lane: (
                lane.cursor == layer - 1
                if lane.suspends
                else (lane.cursor is None or lane.cursor < layer)
            )
        )

    def _in_post(self, layer: int) -> tuple[int, ...]:
        return self._select(
            lambda lane: (
                lane.cursor == layer
                if lane.suspends
                else (lane.cursor is None or lane.cursor <= layer)
            )
        )

    def _weights(self, layer: int) -> tuple[tuple[SignalRef, ...], tuple[BufferRef, ...]]:
        """What a stage of `layer` waits for and reads because of its weights."""
        if layer not in self._streamed.layers:
            return (), ()
        return (self._loaded[layer],), (weight_slot(self._streamed.slot_of(layer)),)

    def _refill(self, layer: int) -> None:
        """Bring the next layer into the slot of `layer`, which has been used."""
        used = self._b.counts.get(Queue.ACCEL, 0)
        following = self._streamed.successor(layer)
        self._loaded[following] = self._b.add(
            OpKind.LOAD, Queue.WEIGHTS, layer=following,
            waits=(SignalRef(Queue.ACCEL, used),),
            writes=(weight_slot(self._streamed.slot_of(layer)),),
        )  # fmt: skip

    def _embed(self, lanes: tuple[int, ...]) -> None:
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.EMBED, lanes=lanes, layer=0,
            reads=(BufferRef(SLOTS),),
            writes=tuple(BufferRef(STATE, i) for i in lanes),
        )  # fmt: skip

    def _pre(self, layer: int, lanes: tuple[int, ...]) -> None:
        states = tuple(BufferRef(STATE, i) for i in lanes)
        loaded, weights = self._weights(layer)
        done = self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.PRE, lanes=lanes, layer=layer, waits=loaded,
            reads=states + weights, writes=states + tuple(BufferRef(QKV, i) for i in lanes),
        )  # fmt: skip
        for i in lanes:
            self._attention(layer, i, done)

    def _attention(self, layer: int, i: int, ready: SignalRef) -> None:
        """Append and attend in each tier of lane `i`; the host's part leaves the accelerator first,
        so that it runs beside the device's part.
        """
        lane = self._lanes[i]
        if lane.host:
            staged = self._b.add(
                OpKind.COPY, Queue.D2H, Part.QKV, lanes=(i,), layer=layer, waits=(ready,),
                reads=(BufferRef(QKV, i),), writes=(BufferRef(HOST_QKV, i),),
            )  # fmt: skip
            self._b.add(
                OpKind.APPEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST, waits=(staged,),
                reads=(BufferRef(HOST_QKV, i),), writes=(pages(Tier.HOST, layer),),
            )  # fmt: skip
            attended = self._b.add(
                OpKind.ATTEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST,
                reads=(BufferRef(HOST_QKV, i), pages(Tier.HOST, layer)),
                writes=(BufferRef(HOST_PARTIAL, i),),
            )  # fmt: skip
            if not lane.suspends:
                self._upload(layer, i, (attended,), None)
        if lane.device:
            self._b.add(
                OpKind.APPEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE,
                reads=(BufferRef(QKV, i),), writes=(pages(Tier.DEVICE, layer),),
            )  # fmt: skip
            self._b.add(
                OpKind.ATTEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE,
                reads=(BufferRef(QKV, i), pages(Tier.DEVICE, layer)),
                writes=(BufferRef(DEVICE_PARTIAL, i),),
            )  # fmt: skip

    def _upload(self, layer: int, i: int, waits: tuple[SignalRef, ...], joins: int | None) -> None:
        self._merged[i] = self._b.add(
            OpKind.COPY, Queue.H2D, Part.PARTIAL, lanes=(i,), layer=layer, waits=waits, joins=joins,
            reads=(BufferRef(HOST_PARTIAL, i),), writes=(BufferRef(STAGED_PARTIAL, i),),
            event=None if joins is None else EventKind.LANE_ADVANCED,
        )  # fmt: skip

    def _post(self, layer: int, lanes: tuple[int, ...]) -> None:
        for i in lanes:
            lane = self._lanes[i]
            if lane.cursor == layer:
                # the bounded wait for the cohort begins when the sweep has come to this layer
                reached = self._b.counts[Queue.ACCEL]
                self._upload(layer, i, (SignalRef(Queue.ACCEL, reached),) if reached else (), i)
            parts = (BufferRef(DEVICE_PARTIAL, i),) if lane.device else ()
            parts += (BufferRef(STAGED_PARTIAL, i),) if lane.host else ()
            self._b.add(
                OpKind.MERGE, Queue.ACCEL, lanes=(i,), layer=layer,
                waits=(self._merged[i],) if lane.host else (),
                reads=parts, writes=(BufferRef(STATE, i),),
            )  # fmt: skip
        states = tuple(BufferRef(STATE, i) for i in lanes)
        last = layer == self._layers - 1
        loaded, weights = self._weights(layer)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.POST, lanes=lanes, layer=layer, waits=loaded,
            reads=states + weights, writes=states, event=EventKind.LANE_DONE if last else None,
        )  # fmt: skip

    def _heads(self) -> None:
        """Logits of the lanes that finished the last layer, each into its own buffer."""
        for i in self._in_post(self._layers - 1):
            if self._lanes[i].head:
                self._b.add(
                    OpKind.STAGE, Queue.ACCEL, Part.HEAD, lanes=(i,), layer=self._layers - 1,
                    reads=(BufferRef(STATE, i),), writes=(BufferRef(LOGITS, i),),
                )  # fmt: skip


def sampling_template(num_lanes: int) -> ProgramTemplate:
    """Choose tokens from logits, write them to the slot table, bring them to the host."""
    b = _Builder()
    for i in range(num_lanes):
        chosen = b.add(
            OpKind.SAMPLE, Queue.ACCEL, lanes=(i,),
            reads=(BufferRef(LOGITS, i),), writes=(BufferRef(SLOTS), BufferRef(SAMPLED, i)),
        )  # fmt: skip
        b.add(
            OpKind.COPY, Queue.D2H, Part.TOKENS, lanes=(i,), waits=(chosen,),
            reads=(BufferRef(SAMPLED, i),), writes=(BufferRef(TOKENS, i),), event=EventKind.TOKENS,
        )  # fmt: skip
    return b.build("sampling", tuple(LaneShape() for _ in range(num_lanes)))


def transfer_template(directions: tuple[Tier, ...]) -> ProgramTemplate:
    """Page copies; `directions` lists each copy's source tier.

    A copy starts after everything submitted earlier to the queue that writes its source's pages.
    """
    b = _Builder()
    for source in directions:
        target = Tier.HOST if source is Tier.DEVICE else Tier.DEVICE
        b.add(
            OpKind.COPY, Queue.D2H if source is Tier.DEVICE else Queue.H2D, Part.PAGES,
            waits=(SignalRef(Queue.ACCEL if source is Tier.DEVICE else Queue.CPU, 0),),
            reads=(pages(source, -1),), writes=(pages(target, -1),), event=EventKind.TRANSFER_DONE,
        )  # fmt: skip
    return b.build("transfer", ())

"""Build program templates: one sweep over the layers, a sampling program, page transfers."""

from tandem.plan.cpu_layers import CpuLayers
from tandem.plan.disk_reads import DiskReads
from tandem.plan.program import (
    BufferRef,
    EventKind,
    LaneShape,
    OpKind,
    Part,
    ProgramTemplate,
    Queue,
    SignalRef,
    buffer,
    signal,
)
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    LOGITS,
    QKV,
    SAMPLED,
    SLOTS,
    STAGED_PARTIAL,
    STATE,
    TOKENS,
    TemplateBuilder,
    pages,
    streamed_weights,
)
from tandem.spec.tier import Tier


def sweep_template(
    num_layers: int, lanes: tuple[LaneShape, ...], layers: SweepLayers | None = None
) -> ProgramTemplate:
    """One pass over all layers.

    Lanes that run through are processed together in every layer; a cohort takes part in the POST of
    its cursor's layer and in the PRE that follows on the accelerator, and leaves its host attention
    running. Layers on the CPU, which lie between, it passes like the others.

    A pass of a cohort's own comes after the others' attention of a layer, before they go on: the
    CPU may be busy with their part of it then. It needs all layers on the accelerator.
    """
    return _SweepBuilder(num_layers, lanes, layers or SweepLayers()).build()


class _SweepBuilder:
    """Emits the operations of a sweep layer by layer."""

    def __init__(self, num_layers: int, lanes: tuple[LaneShape, ...], sweep: SweepLayers) -> None:
        self._layers = num_layers
        self._lanes = lanes
        self._successors = sweep.successors
        self._mlps = frozenset(sweep.streamed.mlps)
        self._on_cpu = frozenset(sweep.on_cpu)
        self._split = frozenset(sweep.split_mlps)
        self._mlp_on_cpu = frozenset(sweep.mlp_on_cpu) - self._split
        self._b = TemplateBuilder()
        self._disk = DiskReads(self._b, sweep.reads)
        self._cpu = CpuLayers(self._b, lanes, self._disk)
        # of the first layers, the sweep before brings the weights
        self._loaded = {
            layer: signal(Queue.WEIGHTS, i + 1 - sweep.streamed.slots)
            for i, layer in enumerate(sweep.loaded[: sweep.streamed.slots])
        }
        self._merged: dict[int, SignalRef] = {}
        self._begun: tuple[int, SignalRef] | None = None  # the last layer, and the end of its PRE
        # lanes with a cursor take part in few layers, and need not be looked at in every one
        self._coming = tuple(i for i, lane in enumerate(lanes) if not lane.suspends)
        self._joining: dict[int | None, list[int]] = {}
        self._beside: dict[int, list[int]] = {}
        for i, lane in enumerate(lanes):
            if lane.beside is not None:
                self._beside.setdefault(lane.beside, []).append(i)
            elif lane.suspends:
                self._joining.setdefault(lane.cursor, []).append(i)
        if self._beside and not sweep.all_resident:
            raise ValueError("passes of a cohort's own need all layers on the accelerator")

    def build(self) -> ProgramTemplate:
        entering = tuple(i for i, lane in enumerate(self._lanes) if lane.cursor is None)
        if entering:
            self._embed(entering)
        last = self._layers - 1
        cursor: int | None = None  # the accelerator's layer before
        lanes: tuple[int, ...] = ()
        for layer in range(self._layers):
            reached = self._reached(layer, cursor)
            if layer in self._on_cpu:
                lanes = reached
                on_host = layer - 1 in self._on_cpu or layer - 1 in self._mlp_on_cpu
                self._cpu.layer(layer, lanes, first=not on_host, last=last)
                self._leave_cpu(layer, lanes)
                continue
            if reached:
                self._pre(layer, reached)
            self._interpose(layer)
            lanes = self._in_post(layer)
            if lanes:
                self._post(layer, lanes)
            if layer in self._mlp_on_cpu:
                self._cpu.mlp(layer, lanes, last=last)
                self._leave_cpu(layer, lanes)
            elif layer in self._split:
                self._cpu.experts(layer, lanes, last=last)
            if layer in self._successors:
                self._refill(layer)
            cursor = layer
        self._heads(lanes)
        return self._b.build("sweep", self._lanes)

    def _interpose(self, beside: int) -> None:
        """Passes of lanes that stand at other layers."""
        for i in self._beside.get(beside, ()):
            cursor = self._lanes[i].cursor
            assert cursor is not None
            self._post(cursor, (i,))
            if cursor + 1 < self._layers:
                self._pre(cursor + 1, (i,))
            else:
                self._heads((i,))

    def _leave_cpu(self, layer: int, lanes: tuple[int, ...]) -> None:
        """After a layer that ends on the CPU, unless the next one begins there."""
        if layer + 1 not in self._on_cpu:
            self._cpu.leave(layer, lanes)

    def _reached(self, layer: int, cursor: int | None) -> tuple[int, ...]:
        """Lanes that begin `layer`: those running through, those that just joined at `cursor`."""
        lanes = self._lanes
        through = [i for i in self._coming if (at := lanes[i].cursor) is None or at < layer]
        return _ascending(through, self._joining.get(cursor))

    def _in_post(self, layer: int) -> tuple[int, ...]:
        lanes = self._lanes
        through = [i for i in self._coming if (at := lanes[i].cursor) is None or at <= layer]
        return _ascending(through, self._joining.get(layer))

    def _weights(
        self, layer: int, *, mlp: bool
    ) -> tuple[tuple[SignalRef, ...], tuple[BufferRef, ...]]:
        """What a stage of `layer` waits for and reads because of its weights.

        Args:
            mlp: whether they are the MLP's, among others.
        """
        if layer not in self._successors or not (mlp or layer not in self._mlps):
            return (), ()
        return (self._loaded[layer],), (streamed_weights(layer),)

    def _refill(self, layer: int) -> None:
        """Bring the next layer into the slot of `layer`, which has been used."""
        following = self._successors[layer]
        if following == layer:  # no other goes through this slot: it stays
            return
        read, source = self._disk.source(following)
        part = Part.MLP if following in self._mlps else Part.NONE
        self._loaded[following] = self._b.add(
            OpKind.LOAD, Queue.WEIGHTS, part, layer=following,
            waits=(self._b.reached(Queue.ACCEL), *read),
            reads=source, writes=(streamed_weights(following), streamed_weights(layer)),
        )  # fmt: skip
        self._disk.used(following, self._loaded[following])

    def _embed(self, lanes: tuple[int, ...]) -> None:
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.EMBED, lanes=lanes, layer=0,
            reads=(buffer(SLOTS),),
            writes=tuple(buffer(STATE, i) for i in lanes),
        )  # fmt: skip

    def _pre(self, layer: int, lanes: tuple[int, ...]) -> None:
        states = tuple(buffer(STATE, i) for i in lanes)
        loaded, weights = self._weights(layer, mlp=False)
        done = self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.PRE, lanes=lanes, layer=layer, waits=loaded,
            reads=states + weights, writes=states + tuple(buffer(QKV, i) for i in lanes),
        )  # fmt: skip
        self._begun = layer, done
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
                reads=(buffer(QKV, i),), writes=(buffer(HOST_QKV, i),),
            )  # fmt: skip
            self._b.add(
                OpKind.APPEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST, waits=(staged,),
                reads=(buffer(HOST_QKV, i),), writes=(pages(Tier.HOST, layer),),
            )  # fmt: skip
            attended = self._b.add(
                OpKind.ATTEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST,
                reads=(buffer(HOST_QKV, i), pages(Tier.HOST, layer)),
                writes=(buffer(HOST_PARTIAL, i),), raises=i if lane.suspends else None,
            )  # fmt: skip
            if not lane.suspends:
                self._upload(layer, i, (attended,), None)
        if lane.device:
            self._b.add(
                OpKind.APPEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE,
                reads=(buffer(QKV, i),), writes=(pages(Tier.DEVICE, layer),),
            )  # fmt: skip
            self._b.add(
                OpKind.ATTEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE,
                reads=(buffer(QKV, i), pages(Tier.DEVICE, layer)),
                writes=(buffer(DEVICE_PARTIAL, i),),
            )  # fmt: skip

    def _upload(self, layer: int, i: int, waits: tuple[SignalRef, ...], joins: int | None) -> None:
        self._merged[i] = self._b.add(
            OpKind.COPY, Queue.H2D, Part.PARTIAL, lanes=(i,), layer=layer, waits=waits, joins=joins,
            reads=(buffer(HOST_PARTIAL, i),), writes=(buffer(STAGED_PARTIAL, i),),
            event=None if joins is None else EventKind.LANE_ADVANCED,
        )  # fmt: skip

    def _post(self, layer: int, lanes: tuple[int, ...]) -> None:
        for i in lanes:
            lane = self._lanes[i]
            if lane.cursor == layer:
                self._upload(layer, i, self._come_to(layer, lane), i)
            parts = (buffer(DEVICE_PARTIAL, i),) if lane.device else ()
            parts += (buffer(STAGED_PARTIAL, i),) if lane.host else ()
            self._b.add(
                OpKind.MERGE, Queue.ACCEL, lanes=(i,), layer=layer,
                waits=(self._merged[i],) if lane.host else (),
                reads=parts, writes=(buffer(STATE, i),),
            )  # fmt: skip
        states = tuple(buffer(STATE, i) for i in lanes)
        part = Part.OUTPUT if layer in self._mlp_on_cpu else Part.POST
        part = Part.ROUTE if layer in self._split else part
        done = part is Part.POST and layer == self._layers - 1
        loaded, weights = self._weights(layer, mlp=True)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, part, lanes=lanes, layer=layer, waits=loaded,
            reads=states + weights, writes=states, event=EventKind.LANE_DONE if done else None,
        )  # fmt: skip

    def _come_to(self, layer: int, lane: LaneShape) -> tuple[SignalRef, ...]:
        """When the sweep has come to where a cohort joins, the bounded wait for it begins. Its
        results are copied while the accelerator attends to the others' keys of that layer.
        """
        if lane.beside is None and self._begun is not None and self._begun[0] == layer:
            return (self._begun[1],)
        reached = self._b.counts[Queue.ACCEL]
        return (signal(Queue.ACCEL, reached),) if reached else ()

    def _heads(self, lanes: tuple[int, ...]) -> None:
        """Logits of the lanes that finished the last layer, each into its own buffer."""
        for i in lanes:
            if self._lanes[i].head:
                self._b.add(
                    OpKind.STAGE, Queue.ACCEL, Part.HEAD, lanes=(i,), layer=self._layers - 1,
                    reads=(buffer(STATE, i),), writes=(buffer(LOGITS, i),),
                )  # fmt: skip


def _ascending(some: list[int], others: list[int] | None) -> tuple[int, ...]:
    return tuple(sorted([*some, *others]) if others else some)


def sampling_template(num_lanes: int) -> ProgramTemplate:
    """Choose tokens from logits, write them to the slot table, bring them to the host."""
    b = TemplateBuilder()
    for i in range(num_lanes):
        chosen = b.add(
            OpKind.SAMPLE, Queue.ACCEL, lanes=(i,),
            reads=(buffer(LOGITS, i),), writes=(buffer(SLOTS), buffer(SAMPLED, i)),
        )  # fmt: skip
        b.add(
            OpKind.COPY, Queue.D2H, Part.TOKENS, lanes=(i,), waits=(chosen,),
            reads=(buffer(SAMPLED, i),), writes=(buffer(TOKENS, i),), event=EventKind.TOKENS,
        )  # fmt: skip
    return b.build("sampling", tuple(LaneShape() for _ in range(num_lanes)))


def transfer_template(directions: tuple[Tier, ...]) -> ProgramTemplate:
    """Page copies; `directions` lists each copy's source tier.

    A copy starts after everything submitted earlier to the queue that writes its source's pages. It
    is of all layers: that each has a signal of its own gains nothing (ADR 0062).
    """
    b = TemplateBuilder()
    for source in directions:
        target = Tier.HOST if source is Tier.DEVICE else Tier.DEVICE
        b.add(
            OpKind.COPY, Queue.D2H if source is Tier.DEVICE else Queue.H2D, Part.PAGES,
            waits=(signal(Queue.ACCEL if source is Tier.DEVICE else Queue.CPU, 0),),
            reads=(pages(source, -1),), writes=(pages(target, -1),), event=EventKind.TRANSFER_DONE,
        )  # fmt: skip
    return b.build("transfer", ())

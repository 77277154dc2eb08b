"""A block's pass that gives every sequence a token: all batches through a layer, then the next one.

Loads are issued ahead, as far as their slots reach, and into the next pass. Where the CPU attends,
a layer's batches first all go up to their attention and then all go on, so that the CPU works on
one while the accelerator works on others; else each goes through the layer at once. Where layers
overlap, a batch goes on and up to its attention in the next layer before the one after it goes on,
so that the CPU has work while a layer ends and the next one begins; a layer's weights then leave
their slot later, for what comes there is wanted no later, unless they come in parts. Where they do
and the CPU does not attend, a batch's prefixes are recomputed before all else in a layer, when
keys' and values' maps have come. Some layers, or MLPs, are the CPU's (`block_cpu_layers.py`). If
then nothing comes over the link for which batches would have to be in a layer together, each goes
through the accelerator's layers and the CPU's next one before another does: the CPU waits for one
batch only, and works on it while the accelerator has the next one.
"""

from collections.abc import Mapping

from tandem.plan.block_cpu_layers import BlockCpuLayers
from tandem.plan.block_parts import WeightTurns, sample_batch
from tandem.plan.block_shape import (
    RECOMPUTED,
    BlockShape,
    batch_pages,
    cache_slot,
    prefix_pages,
    prefix_slot,
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
    HOST_PARTIAL,
    HOST_QKV,
    QKV,
    SLOTS,
    STAGED_PARTIAL,
    STATE,
    TemplateBuilder,
)
from tandem.spec.tier import Tier

_Ahead = Mapping[tuple[int, Part], SignalRef]


def first_block_template(shape: BlockShape) -> ProgramTemplate:
    """The pass after a fill, which it waits for, and prompts or a pass of another shape before."""
    return _PassBuilder(shape, {}, follows=False).build()


def block_template(shape: BlockShape) -> ProgramTemplate:
    """The pass of a block of that shape that follows another one."""
    first = _PassBuilder(shape, {}, follows=False)
    first.build()
    return _PassBuilder(shape, first.ahead(), follows=True).build()


class _PassBuilder:
    """Emits the operations of a pass.

    Args:
        ahead: of the first batches, when their loads by the pass before have ended.
        follows: another pass of the same shape.
    """

    def __init__(self, shape: BlockShape, ahead: _Ahead, *, follows: bool) -> None:
        self._shape, self._follows = shape, follows
        self._b = TemplateBuilder()
        self._came: dict[tuple[int, Part], SignalRef] = dict(ahead)
        self._coming: dict[tuple[int, Part], SignalRef] = {}
        self._stored: dict[int, SignalRef] = {}
        self._used: dict[int, SignalRef] = {}
        self._attended: dict[int, SignalRef] = {}
        self._cpu_layers = BlockCpuLayers(self._b, shape)
        self._divided = frozenset(shape.divided)
        self._weights = WeightTurns(self._b, shape, shape.in_passes, shape.divided)

    def build(self) -> ProgramTemplate:
        shape = self._shape
        if shape.interleaves:
            self._between_layers()
        elif shape.batches_part:
            self._up_to_the_cpu()
        else:
            self._layer_by_layer()
        return self._b.build("block", shape.lanes)

    def _layer_by_layer(self) -> None:
        for layer in range(self._shape.num_layers):
            self._through(layer)

    def _through(self, layer: int) -> None:
        shape = self._shape
        turns = shape.cpu or self._cpu_layers.has(layer)
        divided = layer in self._divided
        for batch in range(shape.batches):
            self._to_attention(layer, batch)
            if not turns:
                self._onwards(layer, batch)
        for batch in range(shape.batches) if turns else ():
            self._onwards(layer, batch)
        # the CPU begins with all batches before the accelerator waits for its own columns
        for batch in range(shape.batches) if divided else ():
            came = self._weights.there(layer, Part.POST)
            self._cpu_layers.columns(layer, batch, came, self._weights.slot(layer, Part.POST))
        for batch in range(shape.batches) if divided else ():
            self._end(layer, batch)
        self._weights.used(layer, Part.POST)

    def _up_to_the_cpu(self) -> None:
        """A batch goes through the accelerator's layers and the CPU's next one, then another."""
        for layers in self._cpu_layers.runs():
            if len(layers) == 1:
                self._through(layers[0])
                continue
            for batch in range(self._shape.batches):
                for layer in layers:
                    self._to_attention(layer, batch)
                    self._leave(layer, batch)
            # whose logits wait for the CPU, which others' way through the run is to reach before
            for batch in range(self._shape.batches):
                self._end(layers[-1], batch)

    def _between_layers(self) -> None:
        shape = self._shape
        for batch in range(shape.batches):
            self._to_attention(0, batch)
        for layer in range(shape.num_layers):
            for batch in range(shape.batches):
                self._onwards(layer, batch)
                if batch == shape.batches - 1:
                    self._weights.used(layer, Part.POST)
                if layer + 1 < shape.num_layers:
                    self._to_attention(layer + 1, batch)

    def ahead(self) -> _Ahead:
        """Loads for the next pass, as seen from there."""
        count = self._b.counts[Queue.H2D]
        return {key: signal(Queue.H2D, done.ordinal - count) for key, done in self._coming.items()}

    # --- up to attention --------------------------------------------------------------------------

    def _to_attention(self, layer: int, batch: int) -> None:
        state = buffer(STATE, batch)
        whole = self._cpu_layers.has(layer)
        if not whole:
            self._cpu_layers.bring_back(layer - 1, batch)
        if layer == 0:
            self._b.add(
                OpKind.STAGE, Queue.ACCEL, Part.EMBED, lanes=(batch,), layer=0,
                reads=(buffer(SLOTS),), writes=(state,),
            )  # fmt: skip
        if self._shape.keys_first:
            self._recompute(layer, batch)
        brought: tuple[SignalRef, ...] = ()
        if whole:
            brought = self._cpu_layers.before_attention(layer, batch)
        else:
            self._project(layer, batch)
        if self._shape.cpu:
            self._attend_on_cpu(layer, batch)
        if self._shape.attends:
            self._attend(layer, batch, brought)
        if self._shape.streamed:
            self._store(layer, batch)
            if not self._delays_load(layer, batch):
                self._load_next(layer, batch)
        if batch == self._shape.batches - 1:
            self._weights.used(layer, Part.PRE)

    def _project(self, layer: int, batch: int) -> None:
        """Queries, keys and values on the accelerator, and their way to the CPU if it attends."""
        qkv = buffer(QKV, batch)
        done = self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.PRE, lanes=(batch,), layer=layer,
            waits=(*self._weights.there(layer, Part.PRE), *self._qkv_free(layer, batch)),
            reads=(buffer(STATE, batch), *self._weights.slot(layer, Part.PRE)), writes=(qkv,),
        )  # fmt: skip
        if self._shape.cpu:
            self._b.add(
                OpKind.COPY, Queue.D2H, Part.QKV, lanes=(batch,), layer=layer, waits=(done,),
                reads=(qkv,), writes=(buffer(HOST_QKV, batch),),
            )  # fmt: skip

    def _qkv_free(self, layer: int, batch: int) -> tuple[SignalRef, ...]:
        """The layer before has let go of queries, keys and values."""
        if self._shape.streamed and layer:
            return (self._stored[batch],)
        if self._shape.streamed or (not layer and not self._follows):
            return (signal(Queue.D2H, 0),)
        return ()  # the CPU's have been merged since

    def _attend_on_cpu(self, layer: int, batch: int) -> None:
        lanes, there = (batch,), buffer(HOST_QKV, batch)
        kept = batch_pages(Tier.HOST, batch, layer)
        # what the CPU has made itself has not been copied
        copied = () if self._cpu_layers.has(layer) else (self._b.reached(Queue.D2H),)
        self._b.add(
            OpKind.APPEND, Queue.CPU, lanes=lanes, layer=layer, tier=Tier.HOST, waits=copied,
            reads=(there,), writes=(kept,),
        )  # fmt: skip
        self._attended[batch] = self._b.add(
            OpKind.ATTEND, Queue.CPU, lanes=lanes, layer=layer, tier=Tier.HOST,
            reads=(there, kept), writes=(buffer(HOST_PARTIAL, batch),),
        )  # fmt: skip

    def _store(self, layer: int, batch: int) -> None:
        """The new token's keys and values, to where the others have come from."""
        self._stored[batch] = self._b.add(
            OpKind.COPY, Queue.D2H, Part.CACHE, lanes=(batch,), layer=layer,
            waits=(self._used[batch],), reads=(buffer(QKV, batch),),
            writes=(streamed_pages(batch, layer),),
        )  # fmt: skip

    def _attend(self, layer: int, batch: int, waits: tuple[SignalRef, ...]) -> None:
        shape, pair = self._shape, self._pair(layer, batch)
        kept: tuple[BufferRef, ...] = ()
        if shape.recomputes and not shape.keys_first:
            self._recompute(layer, batch)
        if shape.streamed:
            kept, waits = (cache_slot(pair),), (*waits, self._came_at(pair, Part.CACHE))
        if shape.resident:
            kept += (batch_pages(Tier.DEVICE, batch, layer),)
        qkv = buffer(QKV, batch)
        self._b.add(
            OpKind.APPEND, Queue.ACCEL, lanes=(batch,), layer=layer, tier=Tier.DEVICE, waits=waits,
            reads=(qkv,), writes=kept,
        )  # fmt: skip
        made = (buffer(RECOMPUTED),) if shape.recomputes else ()
        self._used[batch] = self._b.add(
            OpKind.ATTEND, Queue.ACCEL, lanes=(batch,), layer=layer, tier=Tier.DEVICE,
            reads=(qkv, *kept, *made), writes=(buffer(DEVICE_PARTIAL, batch),),
        )  # fmt: skip

    def _recompute(self, layer: int, batch: int) -> None:
        pair = self._pair(layer, batch)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.RECOMPUTE, lanes=(batch,), layer=layer,
            waits=(self._came_at(pair, Part.PREFIX), *self._weights.there(layer, Part.RECOMPUTE)),
            reads=(prefix_slot(pair), *self._weights.slot(layer, Part.RECOMPUTE)),
            writes=(buffer(RECOMPUTED),),
        )  # fmt: skip

    # --- after attention --------------------------------------------------------------------------

    def _onwards(self, layer: int, batch: int) -> None:
        self._leave(layer, batch)
        if layer not in self._divided:
            self._end(layer, batch)

    def _leave(self, layer: int, batch: int) -> None:
        if self._cpu_layers.has(layer):
            self._load_delayed(layer, batch)
            self._cpu_layers.after_attention(layer, batch, self._used.get(batch))
        else:
            self._merge(layer, batch)
            self._finish(layer, batch)

    def _end(self, layer: int, batch: int) -> None:
        """Of a pass, if the layer is the last."""
        if layer == self._shape.num_layers - 1:
            self._cpu_layers.bring_back(layer, batch)
            sample_batch(self._b, self._shape, batch, buffer(STATE, batch))

    def _merge(self, layer: int, batch: int) -> None:
        shape = self._shape
        parts = (buffer(DEVICE_PARTIAL, batch),) if shape.attends else ()
        waits: tuple[SignalRef, ...] = ()
        if shape.cpu:
            staged = buffer(STAGED_PARTIAL, batch)
            back = self._b.add(
                OpKind.COPY, Queue.H2D, Part.PARTIAL, lanes=(batch,), layer=layer,
                waits=(self._attended[batch],), reads=(buffer(HOST_PARTIAL, batch),),
                writes=(staged,),
            )  # fmt: skip
            parts, waits = (*parts, staged), (back,)
        self._load_delayed(layer, batch)
        self._b.add(
            OpKind.MERGE, Queue.ACCEL, lanes=(batch,), layer=layer, waits=waits,
            reads=parts, writes=(buffer(STATE, batch),),
        )  # fmt: skip

    def _finish(self, layer: int, batch: int) -> None:
        """The rest of a layer whose attention's maps are the accelerator's."""
        if layer in self._shape.mlps_on_cpu:
            self._cpu_layers.mlp(layer, batch)
            return
        if layer in self._divided:
            self._cpu_layers.mlp(layer, batch, self._weights.slot(layer, Part.OUTPUT))
            return
        state = buffer(STATE, batch)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.POST, lanes=(batch,), layer=layer,
            waits=self._weights.there(layer, Part.POST),
            reads=(state, *self._weights.slot(layer, Part.POST)), writes=(state,),
        )  # fmt: skip

    # --- loads ------------------------------------------------------------------------------------

    def _pair(self, layer: int, batch: int) -> int:
        return layer * self._shape.batches + batch

    def _came_at(self, pair: int, part: Part) -> SignalRef:
        return self._came.get((pair, part), signal(Queue.H2D, 0))

    def _delays_load(self, layer: int, batch: int) -> bool:
        """Another layer's keys and values come after the CPU's results, which are wanted sooner;
        where layers overlap, only the next pass's.
        """
        batches = self._shape.batches
        following, in_next_pass = self._shape.next_in_slot(self._pair(layer, batch))
        other = not self._shape.interleaves and following // batches != layer
        return self._shape.cpu and (in_next_pass or other)

    def _load_delayed(self, layer: int, batch: int) -> None:
        if self._shape.streamed and self._delays_load(layer, batch):
            self._load_next(layer, batch)

    def _load_next(self, layer: int, batch: int) -> None:
        """Keys and values of a later batch, to where those of this one have been."""
        following, in_next_pass = self._shape.next_in_slot(self._pair(layer, batch))
        target, lane = divmod(following, self._shape.batches)
        free = self._used[batch]
        # what the pass before stored, or this one if it is for the next
        stored = self._b.reached(Queue.D2H) if in_next_pass else signal(Queue.D2H, 0)
        came = self._coming if in_next_pass else self._came
        if self._shape.recomputes:
            came[following, Part.PREFIX] = self._b.add(
                OpKind.COPY, Queue.H2D, Part.PREFIX, lanes=(lane,), layer=target, waits=(free,),
                reads=(prefix_pages(lane, target),), writes=(prefix_slot(following),),
            )  # fmt: skip
        came[following, Part.CACHE] = self._b.add(
            OpKind.COPY, Queue.H2D, Part.CACHE, lanes=(lane,), layer=target, waits=(free, stored),
            reads=(streamed_pages(lane, target),), writes=(cache_slot(following),),
        )  # fmt: skip

"""What both passes of a block have: weights that come a layer ahead, and a batch's last steps.

What comes of a layer is all of it, or what is used before attention and the rest by themselves
(KVPR's fine-grained order, section 3.3): where batches are in two layers at once, a whole layer's
place is free only when the next but one is already waited for. Where prefixes are recomputed before
anything else is done in a layer, keys' and values' maps come before queries', too.
"""

from collections.abc import Iterable, Mapping

from tandem.plan.block_shape import BlockShape
from tandem.plan.disk_reads import DiskReads
from tandem.plan.program import BufferRef, EventKind, OpKind, Part, Queue, SignalRef, buffer, signal
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.template_builder import (
    LOGITS,
    SAMPLED,
    SLOTS,
    TOKENS,
    TemplateBuilder,
    streamed_weights,
)


class WeightTurns:
    """Streamed layers go round once a pass; the first ones were brought by the pass before, which
    also read those that come from disk next. Of some, only the MLP comes, for the stage after
    attention. Where the CPU computes columns of MLPs, these do not come in passes, so that prompts
    begin with those of the layers that are there.

    Args:
        sweep: which of them this pass brings.
        divided: of these, all comes but the columns that the CPU computes.
    """

    def __init__(
        self,
        builder: TemplateBuilder,
        shape: BlockShape,
        sweep: SweepLayers,
        divided: Iterable[int] = (),
    ) -> None:
        self._b, self._mlps = builder, frozenset(shape.weights.mlps)
        streamed = shape.weights
        self._brought = frozenset(sweep.loaded)
        self._successors = sweep.successors if sweep.reloads else {}
        self._disk = DiskReads(builder, sweep.reads)
        self._in_parts = shape.weights_in_parts
        self._read_by = _parts_by_stage(shape)
        self._divided = frozenset(divided)
        # of these nothing is used before attention
        self._late = self._mlps | ({*self._divided} if shape.attention_maps_on_cpu else set[int]())
        # what passes bring only in part, and this brings whole
        self._completed = frozenset(() if self._divided else shape.divided)
        in_turn = tuple(dict.fromkeys((*self._read_by[Part.PRE], *self._read_by[Part.POST])))
        self._loaded = {
            (layer, part): signal(Queue.WEIGHTS, len(in_turn) * (i - streamed.slots) + n)
            for i, layer in enumerate(streamed.first)
            for n, part in enumerate(in_turn, 1)
        }
        for layer in streamed.first:
            if layer in self._completed:
                self._complete(layer)

    def there(self, layer: int, stage: Part) -> tuple[SignalRef, ...]:
        """What a stage of the layer waits for; whole layers have come before the first one."""
        if not self._in_parts and stage is not self._first_stage(layer):
            return ()
        done = self._loaded.get((layer, self._read_by[stage][-1]))
        return () if done is None else (done,)

    def slot(self, layer: int, stage: Part) -> tuple[BufferRef, ...]:
        """Where its weights lie, if they come."""
        after = stage is Part.POST
        if layer not in self._brought or (not after and layer in self._mlps):
            return ()
        parts = self._read_by[stage]
        parts += (Part.CPU_COLUMNS,) if after and layer in self._completed else ()
        return tuple(streamed_weights(layer, part) for part in parts)

    def used(self, layer: int, stage: Part) -> None:
        """All batches are through a stage of the layer, `PRE` or `POST`: what it alone has used
        gives its place to the next streamed layer's.
        """
        if layer not in self._successors:
            return  # all that have a slot stay there
        if not self._in_parts and stage is Part.PRE:
            return
        following = self._successors[layer]
        loads = [self._load(following, layer, part) for part in self._read_by[stage]]
        if stage is Part.POST:  # all parts have been copied
            self._disk.used(following, loads[-1])

    def _complete(self, layer: int) -> None:
        """Bring columns that the pass before has left out to the layer that it has brought."""
        whole = streamed_weights(layer, Part.CPU_COLUMNS)
        self._loaded[layer, Part.NONE] = self._b.add(
            OpKind.LOAD, Queue.WEIGHTS, Part.CPU_COLUMNS, layer=layer,
            waits=(signal(Queue.ACCEL, 0),), writes=(whole,),
        )  # fmt: skip

    def _load(self, following: int, layer: int, part: Part) -> SignalRef:
        """A layer, or that part of it, to where another one has been."""
        read, source = self._disk.source(following)
        places = (streamed_weights(following, part), streamed_weights(layer, part))
        if self._divided:  # of the layer that was there, what else it had may be in another's way
            places += (streamed_weights(layer, Part.CPU_COLUMNS),)
        elif self._completed:
            places += tuple(streamed_weights(n, Part.CPU_COLUMNS) for n in (following, layer))
        done = self._b.add(
            OpKind.LOAD, Queue.WEIGHTS, self._brings(following, part),
            layer=following, waits=(self._b.reached(Queue.ACCEL), *read), reads=source,
            writes=places,
        )  # fmt: skip
        if following > layer:
            self._loaded[following, part] = done
        return done

    def _brings(self, layer: int, part: Part) -> Part:
        if layer in self._divided:
            return Part.COLUMNS
        return Part.MLP if layer in self._mlps else part

    def _first_stage(self, layer: int) -> Part:
        """That uses what has come of it."""
        return Part.POST if layer in self._late else Part.PRE


def _parts_by_stage(shape: BlockShape) -> Mapping[Part, tuple[Part, ...]]:
    """What a stage reads of a layer that comes, in the order in which it comes."""
    if not shape.weights_in_parts:
        stages = (Part.RECOMPUTE, Part.PRE, Part.OUTPUT, Part.POST)
        return dict.fromkeys(stages, (Part.NONE,))
    before = (Part.KEYS_VALUES, Part.QUERIES) if shape.keys_first else (Part.PRE,)
    return {Part.RECOMPUTE: before[:1], Part.PRE: before, Part.POST: (Part.POST,)}


def sample_batch(
    builder: TemplateBuilder, shape: BlockShape, batch: int, state: BufferRef
) -> SignalRef:
    """After the last layer: logits, tokens, and these on their way to the host."""
    lanes, logits, sampled = (batch,), buffer(LOGITS, batch), buffer(SAMPLED, batch)
    builder.add(
        OpKind.STAGE, Queue.ACCEL, Part.HEAD, lanes=lanes, layer=shape.num_layers - 1,
        reads=(state,), writes=(logits,),
    )  # fmt: skip
    chosen = builder.add(
        OpKind.SAMPLE, Queue.ACCEL, lanes=lanes, reads=(logits,),
        writes=(buffer(SLOTS), sampled),
    )  # fmt: skip
    return builder.add(
        OpKind.COPY, Queue.D2H, Part.TOKENS, lanes=lanes, waits=(chosen,), reads=(sampled,),
        writes=(buffer(TOKENS, batch),), event=EventKind.TOKENS,
    )  # fmt: skip

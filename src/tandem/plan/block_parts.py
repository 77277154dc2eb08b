"""What both passes of a block have: weights that come a layer ahead, and a batch's last steps."""

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import BufferRef, EventKind, OpKind, Part, Queue, SignalRef
from tandem.plan.template_builder import (
    LOGITS,
    SAMPLED,
    SLOTS,
    TOKENS,
    TemplateBuilder,
    streamed_weights,
)
from tandem.plan.weights import StreamedLayers


class WeightTurns:
    """Streamed layers go round once a pass; the first ones were brought by the pass before."""

    def __init__(self, builder: TemplateBuilder, streamed: StreamedLayers) -> None:
        self._b, self._streamed = builder, streamed
        self._loaded = {
            layer: SignalRef(Queue.WEIGHTS, i + 1 - streamed.slots)
            for i, layer in enumerate(streamed.layers[: streamed.slots])
        }

    def there(self, layer: int) -> tuple[SignalRef, ...]:
        """What a stage of the layer waits for."""
        return (self._loaded[layer],) if layer in self._loaded else ()

    def slot(self, layer: int) -> tuple[BufferRef, ...]:
        """Where its weights lie, if they come."""
        return (streamed_weights(layer),) if layer in self._streamed.layers else ()

    def refill(self, layer: int) -> None:
        """Bring the next streamed layer into the slot of `layer`, which all batches have used."""
        layers, slots = self._streamed.layers, self._streamed.slots
        if layer not in layers or len(layers) == slots:
            return  # all that have a slot stay there
        following = layers[(layers.index(layer) + slots) % len(layers)]
        done = self._b.add(
            OpKind.LOAD, Queue.WEIGHTS, layer=following, waits=(self._b.reached(Queue.ACCEL),),
            writes=(*self.slot(following), *self.slot(layer)),
        )  # fmt: skip
        if following > layer:
            self._loaded[following] = done


def sample_batch(
    builder: TemplateBuilder, shape: BlockShape, batch: int, state: BufferRef
) -> SignalRef:
    """After the last layer: logits, tokens, and these on their way to the host."""
    lanes, logits, sampled = (batch,), BufferRef(LOGITS, batch), BufferRef(SAMPLED, batch)
    builder.add(
        OpKind.STAGE, Queue.ACCEL, Part.HEAD, lanes=lanes, layer=shape.num_layers - 1,
        reads=(state,), writes=(logits,),
    )  # fmt: skip
    chosen = builder.add(
        OpKind.SAMPLE, Queue.ACCEL, lanes=lanes, reads=(logits,),
        writes=(BufferRef(SLOTS), sampled),
    )  # fmt: skip
    return builder.add(
        OpKind.COPY, Queue.D2H, Part.TOKENS, lanes=lanes, waits=(chosen,), reads=(sampled,),
        writes=(BufferRef(TOKENS, batch),), event=EventKind.TOKENS,
    )  # fmt: skip

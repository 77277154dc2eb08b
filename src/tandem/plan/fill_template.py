"""Before a block's passes, what passes otherwise bring for the next one: the first KV in slots."""

from tandem.plan.block_shape import (
    CACHE_SLOTS,
    BlockShape,
    cache_slot,
    prefix_pages,
    prefix_slot,
    streamed_pages,
)
from tandem.plan.program import OpKind, Part, ProgramTemplate, Queue, SignalRef
from tandem.plan.template_builder import TemplateBuilder


def fill_template(shape: BlockShape) -> ProgramTemplate:
    """After prompts: their keys and values have drained, and what the slots held is void."""
    b = TemplateBuilder()
    # the prompts' tokens leave last: then all has drained, and nothing uses the slots any more
    waits = (SignalRef(Queue.D2H, 0),)
    for pair in range(min(CACHE_SLOTS, shape.pairs) if shape.streamed else 0):
        layer, batch = divmod(pair, shape.batches)
        if shape.recomputes:
            b.add(
                OpKind.COPY, Queue.H2D, Part.PREFIX, lanes=(batch,), layer=layer, waits=waits,
                reads=(prefix_pages(batch, layer),), writes=(prefix_slot(pair),),
            )  # fmt: skip
        b.add(
            OpKind.COPY, Queue.H2D, Part.CACHE, lanes=(batch,), layer=layer, waits=waits,
            reads=(streamed_pages(batch, layer),), writes=(cache_slot(pair),),
        )  # fmt: skip
    return b.build("fill", shape.lanes)

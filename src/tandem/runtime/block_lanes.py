"""What an operation of a block's program works on."""

from collections.abc import Iterator

from tandem.plan.block_shape import CACHE_SLOTS
from tandem.plan.prefill_template import PROMPTS
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.running import Running


def lanes_of(running: Running) -> Iterator[tuple[int, LaneContext]]:
    """Lanes that take part, with their places in the template."""
    for index in running.context.active(running.op):
        yield index, running.context.lanes[index]


def slot_of(running: Running, lane: int) -> int:
    """The slot that passing KV of a lane has in the operation's layer; both take turns."""
    lanes = len(running.context.program.template.lanes)
    return (running.op.layer * lanes + lane) % CACHE_SLOTS


def is_of_prompts(running: Running) -> bool:
    """Whether it is over prompts, not over a token of each sequence."""
    return running.context.program.template.name == PROMPTS

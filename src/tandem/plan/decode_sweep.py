"""Sweeps over rows that decode on the accelerator alone, which may be launched as one operation."""

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import numpy as np

from tandem.plan.program import (
    EventKind,
    LaneShape,
    OpKind,
    ProgramTemplate,
    Queue,
    StepProgram,
    buffer,
)
from tandem.plan.template_builder import LOGITS, SLOTS, TemplateBuilder, pages
from tandem.plan.validator import validate
from tandem.spec.tier import Tier

MAX_BUCKETS = 12
MAX_BUCKET_ROWS = 512
"""Steps of more rows take so long that launching their operations one by one delays nothing."""


def row_buckets(max_rows: int) -> tuple[int, ...]:
    """Numbers of rows that steps are padded to, ascending; the last is the most that are padded.

    Powers of two, whose gaps are halved from the top down as far as `MAX_BUCKETS` allow: a large
    step pays for its padding with products, a small one hardly, since it waits for weights.
    """
    most = min(max_rows, MAX_BUCKET_ROWS)
    buckets = {1 << power for power in range(most.bit_length())} | {most}
    ordered = sorted(buckets, reverse=True)
    for above, below in pairwise(ordered):
        between = (above + below) // 2
        if len(buckets) < MAX_BUCKETS and below < between:
            buckets.add(between)
    return tuple(sorted(buckets))


def bucket_of(rows: int, buckets: Iterable[int]) -> int | None:
    """The least of ascending buckets that has room; None: none has."""
    return next((bucket for bucket in buckets if bucket >= rows), None)


@cache
def decode_template() -> ProgramTemplate:
    """A whole sweep as one operation: of a single lane, whose keys are all on the accelerator."""
    b = TemplateBuilder()
    b.add(
        OpKind.SWEEP, Queue.ACCEL, lanes=(0,),
        reads=(buffer(SLOTS),),
        writes=(pages(Tier.DEVICE, -1), buffer(LOGITS, 0)), event=EventKind.LANE_DONE,
    )  # fmt: skip
    template = b.build("decode", (LaneShape(),))
    validate(template)
    return template


def decodes_on_accelerator(program: StepProgram) -> bool:
    """Whether a program is such a sweep: nothing but the accelerator takes part, every row of its
    only lane has one token, and every token gives logits, in the rows' order.
    """
    template = program.template
    if template.lanes != (LaneShape(),) or program.sampling:
        return False
    if any(queue is not Queue.ACCEL for queue, _ in template.counts):
        return False
    slot = program.lanes[0]
    binding, tokens = slot.binding, slot.binding.num_tokens
    attention, append = binding.attention.get(Tier.DEVICE), binding.append.get(Tier.DEVICE)
    if slot.cohort_id or slot.passing is not None or attention is None or append is None:
        return False
    whole = attention.token_index is None and append.token_index is None
    return (
        whole
        and attention.block_index is None
        and attention.num_decode == len(attention.block_table) == tokens
        and np.array_equal(binding.logits_index, np.arange(tokens))
    )

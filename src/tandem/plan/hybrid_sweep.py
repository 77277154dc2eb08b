"""Sweeps over rows that decode, some of whose keys lie on the host, which may be launched as one
operation of the accelerator's beside one of the CPU's.
"""

from functools import cache

import numpy as np

from tandem.plan.binding import LaneBinding, LongArray
from tandem.plan.program import (
    BufferRef,
    EventKind,
    LaneShape,
    OpKind,
    Part,
    ProgramTemplate,
    Queue,
    StepProgram,
)
from tandem.plan.template_builder import LOGITS, SLOTS, TemplateBuilder, pages
from tandem.plan.validator import validate
from tandem.spec.tier import Tier

ALL_LAYERS = -1
"""An operation's layer: it is of all of them."""
_PLAIN = frozenset({OpKind.STAGE, OpKind.APPEND, OpKind.ATTEND, OpKind.COPY, OpKind.MERGE})
_STAGES = frozenset({Part.NONE, Part.EMBED, Part.PRE, Part.POST, Part.HEAD, Part.QKV, Part.PARTIAL})


@cache
def hybrid_template() -> ProgramTemplate:
    """The host's attention of all layers, and the accelerator's sweep. They hand rows to each other
    while both run, by counters of their own, so that neither waits for the other's end.
    """
    b = TemplateBuilder()
    b.add(
        OpKind.ATTEND, Queue.CPU, lanes=(0,), layer=ALL_LAYERS, tier=Tier.HOST,
        writes=(pages(Tier.HOST, ALL_LAYERS),),
    )  # fmt: skip
    b.add(
        OpKind.SWEEP, Queue.ACCEL, lanes=(0,), reads=(BufferRef(SLOTS),),
        writes=(pages(Tier.DEVICE, ALL_LAYERS), BufferRef(LOGITS, 0)), event=EventKind.LANE_DONE,
    )  # fmt: skip
    template = b.build("hybrid decode", (LaneShape(host=True),))
    validate(template)
    return template


def is_plain_sweep(template: ProgramTemplate) -> bool:
    """Whether it is a sweep of one lane with a part on the host that runs through all layers, of
    which none is anywhere but on the accelerator.
    """
    if len(template.lanes) != 1:
        return False
    (lane,) = template.lanes
    through = lane.cursor is None and not lane.suspends and lane.beside is None and not lane.guarded
    stages_here = all(
        op.kind in _PLAIN and op.part in _STAGES
        and (op.kind is not OpKind.STAGE or op.queue is Queue.ACCEL)
        for op in template.ops
    )  # fmt: skip
    return lane.host and through and stages_here


def decodes_in_both_tiers(program: StepProgram, block_size: int) -> bool:
    """Whether every row of a program's only lane has one token, which gives logits in the rows'
    order, and all of its keys in one tier; some on the host. `is_plain_sweep` holds.
    """
    slot = program.lanes[0]
    binding = slot.binding
    if program.sampling or program.transfers or slot.cohort_id or slot.passing is not None:
        return False
    tokens = binding.num_tokens
    if not np.array_equal(binding.logits_index, np.arange(tokens)):
        return False
    if Tier.HOST not in binding.attention or not all(
        _decodes(binding, tier, block_size) for tier in Tier
    ):
        return False
    there = tokens_in(binding, Tier.HOST)
    here = tokens_in(binding, Tier.DEVICE)
    return len(here) + len(there) == tokens and not np.isin(here, there, assume_unique=True).any()


def tokens_in(binding: LaneBinding, tier: Tier) -> LongArray:
    """A lane's tokens that attend in a tier, ascending as they are given."""
    attention = binding.attention.get(tier)
    if attention is None:
        return np.zeros(0, dtype=np.int64)
    if attention.token_index is None:
        return np.arange(binding.num_tokens)
    return attention.token_index


def _decodes(binding: LaneBinding, tier: Tier, block_size: int) -> bool:
    """Whether what attends in a tier are rows of one token, which is put there, with all keys."""
    attention, append = binding.attention.get(tier), binding.append.get(tier)
    if attention is None or append is None:
        return attention is None and append is None
    if not attention.num_decode == len(attention.block_table) == len(attention.positions):
        return False
    if attention.block_index is not None:
        blocks = np.arange(attention.block_index.shape[1])
        is_own = blocks <= (attention.positions // block_size)[:, None]
        if not np.array_equal(attention.block_index[is_own], np.nonzero(is_own)[1]):
            return False  # some blocks of a row lie in the other tier
    put = np.arange(binding.num_tokens) if append.token_index is None else append.token_index
    return np.array_equal(put, tokens_in(binding, tier))

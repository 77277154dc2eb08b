"""Sweeps over rows that decode, some of whose keys lie on the host, which may be launched as one
operation of the accelerator's beside one of the CPU's.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from tandem.plan.binding import LongArray, TierAppend, TierAttention
from tandem.plan.program import (
    EventKind,
    LaneShape,
    OpKind,
    Part,
    ProgramTemplate,
    Queue,
    StepProgram,
    buffer,
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
        OpKind.SWEEP, Queue.ACCEL, lanes=(0,), reads=(buffer(SLOTS),),
        writes=(pages(Tier.DEVICE, ALL_LAYERS), buffer(LOGITS, 0)), event=EventKind.LANE_DONE,
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


@dataclass(frozen=True, slots=True)
class HybridRows:
    """Rows of one token each, by where their keys lie; of some, in both tiers.

    Attributes:
        there: int64; tokens that attend on the host. put_there: those whose own keys go there.
        put_here: the others, whose keys go to the accelerator.
        here: tokens that attend on the accelerator. keys_here: int64 [tokens]; of each token, how
            many keys lie there. Which ones does not matter: tables are in their order, so that all
            blocks but the last are full.
    """

    there: LongArray
    put_there: LongArray
    put_here: LongArray
    here: LongArray
    keys_here: LongArray


def hybrid_rows(program: StepProgram, block_size: int, *, splits: bool = True) -> HybridRows | None:
    """Of a program whose only lane's rows have one token each, which gives logits in the rows'
    order, some of them attended to on the host; None if it is of another kind. `is_plain_sweep`
    holds.

    Args:
        splits: whether a row's keys may lie in both tiers.
    """
    slot = program.lanes[0]
    binding = slot.binding
    if program.sampling or program.transfers or slot.cohort_id or slot.passing is not None:
        return None
    attention = binding.attention.get(Tier.HOST)
    tokens = np.arange(binding.num_tokens)
    if attention is None or not np.array_equal(binding.logits_index, tokens):
        return None
    if not all(_decodes(part) for part in binding.attention.values()):
        return None
    there, here = (
        _chosen(tokens, binding.attention.get(tier)) for tier in (Tier.HOST, Tier.DEVICE)
    )
    put_there, put_here = (
        _chosen(tokens, binding.append.get(tier)) for tier in (Tier.HOST, Tier.DEVICE)
    )
    keys = binding.positions.astype(np.int64) + 1
    keys[there] -= _keys_in(attention, block_size)
    in_both = len(here) + len(there) - len(tokens)
    if not np.array_equal(np.nonzero(keys)[0], here) or (in_both and not splits):
        return None
    return HybridRows(there, put_there, put_here, here, keys)


def _keys_in(attention: TierAttention, block_size: int) -> LongArray:
    """Of each row of one token, how many keys lie in the attention's tier: int64 [rows]."""
    positions = attention.positions.astype(np.int64)
    if attention.block_index is None:
        return positions + 1
    last = (positions // block_size)[:, None]
    blocks = (attention.block_index <= last).sum(axis=1)
    has_last = (attention.block_index == last).any(axis=1)
    return blocks * block_size - has_last * (block_size - 1 - positions % block_size)


def _chosen(tokens: LongArray, part: TierAttention | TierAppend | None) -> LongArray:
    """Those of a lane's tokens that a tier has a part of."""
    if part is None:
        return tokens[:0]
    return tokens if part.token_index is None else part.token_index


def _decodes(attention: TierAttention) -> bool:
    """Whether all rows have one token."""
    return attention.num_decode == len(attention.block_table) == len(attention.positions)

"""A lane's keys and values that pass through the accelerator, one layer at a time (ADR 0025)."""

from dataclasses import dataclass

from tandem.plan.binding import IntArray, LongArray, TierAppend, TierAttention


@dataclass(frozen=True, slots=True)
class RecomputedPrefix:
    """Of streamed rows, the first tokens, whose keys and values are made anew in every layer.

    Attributes:
        entries: int64 [n]; places of their activations in the host's store.
        tokens: int64 [n]; of prompts, which of the lane's tokens these are; else empty.
        positions: int32 [n]; absolute.
        slots: int64 [n]; where their keys and values go among the recomputed blocks.
        attention: of the lane's rows that have such tokens, over the recomputed blocks; None for
            prompts, whose own keys and values are there.
    """

    entries: LongArray
    tokens: LongArray
    positions: IntArray
    slots: LongArray
    attention: TierAttention | None


@dataclass(frozen=True, slots=True)
class PassingKV:
    """The part of a lane whose keys and values have a slot on the accelerator while a layer lasts.

    In decoding these are streamed rows, whose blocks come from the host and whose new tokens go
    there. Of prompts they are all rows with KV on the host, whose whole blocks go there.

    Attributes:
        attention: over the slot's blocks, numbered within it.
        append: where the lane's tokens go in the slot.
        slot_blocks, host_blocks: int32 [n]; blocks of the slot, and those of the host with the same
            tokens.
        stored: in decoding, where new tokens go on the host; None for prompts.
        prefix: the tokens before, if some are recomputed.
    """

    attention: TierAttention
    append: TierAppend
    slot_blocks: IntArray
    host_blocks: IntArray
    stored: TierAppend | None = None
    prefix: RecomputedPrefix | None = None

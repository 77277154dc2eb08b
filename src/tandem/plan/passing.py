"""A lane's keys and values that pass through the accelerator, one layer at a time (ADR 0025)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.plan.binding import IntArray, LongArray, TierAppend, TierAttention


@dataclass(frozen=True, slots=True)
class BlockRun:
    """Blocks of a slot that follow each other, and those of the host with the same tokens."""

    slot_block: int
    host_block: int
    count: int


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

    @property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(first entry, count) of entries that follow each other, in order: what a copy takes."""
        firsts = _run_starts(np.diff(self.entries) == 1) if len(self.entries) else self.entries
        counts = np.diff(np.append(firsts, len(self.entries)))
        return tuple(zip(self.entries[firsts].tolist(), counts.tolist(), strict=True))


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
        pinned_blocks: of the host's, where those end that are pinned: no copy goes across.
    """

    attention: TierAttention
    append: TierAppend
    slot_blocks: IntArray
    host_blocks: IntArray
    stored: TierAppend | None = None
    prefix: RecomputedPrefix | None = None
    pinned_blocks: int = 0

    @property
    def runs(self) -> tuple[BlockRun, ...]:
        """Copies that bring or take its blocks: as few as have both kinds of blocks in a row."""
        if not len(self.slot_blocks):
            return ()
        follows = (np.diff(self.slot_blocks) == 1) & (np.diff(self.host_blocks) == 1)
        follows &= self.host_blocks[1:] != self.pinned_blocks
        firsts = _run_starts(follows)
        counts = np.diff(np.append(firsts, len(self.slot_blocks)))
        return tuple(
            BlockRun(int(self.slot_blocks[first]), int(self.host_blocks[first]), int(count))
            for first, count in zip(firsts, counts, strict=True)
        )


def _run_starts(follows: NDArray[np.bool_]) -> LongArray:
    """Where runs begin, given of all but the first whether each belongs to the one before."""
    return np.flatnonzero(np.concatenate([[True], ~follows]))

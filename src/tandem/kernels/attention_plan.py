"""Decides once per step, on the host, how paged attention reads its keys; all layers share it.

A row's blocks come in logical order, so the keys that a query sees are a prefix of the row's
gathered keys: every mask is a count. Decode rows of similar length are gathered together (a
`DecodeGroup`); other rows are cut into `Span`s of blocks and each span into `Piece`s that need no
mask at all (every query sees every key, or plain causal).

Gathers are of `pages` viewed as `[num_blocks * 2 * kv_heads, block_size, head_dim]`, in an order
that leaves each head's keys contiguous.
"""

import math
from dataclasses import dataclass

import numpy as np

from tandem.kernels.pages import PageShape
from tandem.plan.binding import IntArray, LongArray, TierAttention

# Below the largest threshold from which glibc serves each allocation with fresh pages (32 MiB):
# a batch of 32 with 1,024 keys ran 2.5 times slower in one gather than in chunks.
DECODE_GATHER_BYTES = 16 << 20
SPAN_GATHER_BYTES = 64 << 20
GATHER_SLOTS = 16  # decode reads pieces of blocks, since a row's last block is seldom full
MAX_PADDING = 2  # a decode group's longest row has at most this many times its shortest's blocks


@dataclass(frozen=True, slots=True)
class DecodeGroup:
    """Decode rows attended together, over keys padded to the same number of blocks.

    Attributes:
        tokens: int64 [rows]; token of the batch of each row.
        piece: slots in the pieces that blocks are divided into; divides the block size.
        gather: int64 [2 * rows * kv_heads * pieces]; K of every row, then V.
        slots: slots read of every piece: all, or if there is one per row as many as needed.
        num_keys: int64 [rows]; keys each row sees, at least 1.
        unused: int64 [u]; slots of the gathered `[2 * rows * kv_heads * pieces * slots]` that the
            longest row uses and another does not: they may hold anything, so they are cleared.
    """

    tokens: LongArray
    piece: int
    gather: LongArray
    slots: int
    num_keys: LongArray
    unused: LongArray


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens over consecutive keys of a span, without a mask.

    Attributes:
        tokens: range of the batch's tokens.
        keys: range of the span's keys.
        causal: token i of the piece sees its keys 0..i; otherwise all.
        first: nothing has been attended for these tokens yet.
    """

    tokens: slice
    keys: slice
    causal: bool
    first: bool


@dataclass(frozen=True, slots=True)
class Span:
    """Some consecutive blocks of one row and what attends to them.

    Attributes:
        gather: int64 [2 * kv_heads * blocks]; K, then V.
        pieces: in the order of execution.
    """

    gather: LongArray
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """Everything that one layer's paged attention in one tier does.

    Attributes:
        num_tokens: tokens of the batch.
        covered: every token sees at least one key.
    """

    num_tokens: int
    covered: bool
    decode: tuple[DecodeGroup, ...]
    spans: tuple[Span, ...]


def plan_attention(att: TierAttention, shape: PageShape) -> AttentionPlan:
    """Groups, spans and pieces for one tier's part of a lane."""
    visible = count_visible_keys(att, shape.block_size)
    block_bytes = shape.numel * 4
    blocks = -(-visible[: att.num_decode] // shape.block_size)
    group_blocks = max(1, DECODE_GATHER_BYTES // block_bytes)
    decode = [
        _decode_group(rows, att.block_table, visible, shape)
        for rows in _group_rows(blocks, group_blocks)
    ]
    long_rows = [int(r) for r in np.flatnonzero(blocks > group_blocks)]
    span_blocks = max(1, SPAN_GATHER_BYTES // block_bytes)
    spans: list[Span] = []
    for row in [*long_rows, *range(att.num_decode, len(att.block_table))]:
        tokens = slice(int(att.query_start[row]), int(att.query_start[row + 1]))
        spans += _row_spans(tokens, visible[tokens], att.block_table[row], shape, span_blocks)
    covered = bool((visible > 0).all())
    return AttentionPlan(len(visible), covered, tuple(decode), tuple(spans))


def count_visible_keys(att: TierAttention, block_size: int) -> LongArray:
    """Keys of this tier that each token sees: those at positions up to its own; int64 [t]."""
    seen = att.positions.astype(np.int64) + 1
    if att.block_index is None:
        return seen
    rows = np.repeat(np.arange(len(att.block_table)), np.diff(att.query_start))
    first_key = att.block_index.astype(np.int64) * block_size  # [rows, max_blocks]
    return np.clip(seen[:, None] - first_key[rows], 0, block_size).sum(1)


def _group_rows(blocks: LongArray, limit: int) -> list[LongArray]:
    """Rows with 1..limit blocks, in groups of similar length with at most `limit` padded blocks."""
    order = np.argsort(-blocks, kind="stable")
    order = order[(blocks[order] > 0) & (blocks[order] <= limit)]
    groups: list[LongArray] = []
    start = 0
    while start < len(order):
        longest = int(blocks[order[start]])
        end = start + max(1, limit // longest)
        near = int((blocks[order] * MAX_PADDING >= longest).sum())
        end = max(start + 1, min(end, near))
        groups.append(np.sort(order[start:end]))
        start = end
    return groups


def _decode_group(
    rows: LongArray, table: IntArray, visible: LongArray, shape: PageShape
) -> DecodeGroup:
    num_keys = visible[rows]
    piece = math.gcd(GATHER_SLOTS, shape.block_size)
    per_block = shape.block_size // piece
    pieces = -(-num_keys // piece)
    width = int(pieces.max())
    # Padding repeats the row's last piece: reading a block of another row would read bytes that
    # may be in flight.
    block, part = np.divmod(np.minimum(np.arange(width), pieces[:, None] - 1), per_block)
    ids = np.take_along_axis(table[rows], block, 1)
    # [2, rows, kv_heads, width]
    gather = _gather_index(ids, shape) * per_block + part[:, None, :]
    slots = piece if width > 1 else int(num_keys.max())
    unused = _unused_slots(num_keys, width * slots, shape)
    return DecodeGroup(rows, piece, gather.reshape(-1), slots, num_keys, unused)


def _unused_slots(num_keys: LongArray, padded: int, shape: PageShape) -> LongArray:
    row, slot = np.nonzero(np.arange(int(num_keys.max())) >= num_keys[:, None])
    part = np.arange(2)[:, None, None]
    head = np.arange(shape.kv_heads)[:, None]
    return (((part * len(num_keys) + row) * shape.kv_heads + head) * padded + slot).reshape(-1)


def _gather_index(ids: IntArray, shape: PageShape) -> LongArray:
    """Block ids [rows, blocks] to places of their heads' keys, values: [2, rows, heads, blocks]."""
    part = np.arange(2)[:, None, None, None]
    head = np.arange(shape.kv_heads)[:, None]
    return (ids.astype(np.int64)[:, None, :] * 2 + part) * shape.kv_heads + head


def _row_spans(
    tokens: slice, visible: LongArray, table: IntArray, shape: PageShape, span_blocks: int
) -> list[Span]:
    """One row's spans; `visible` holds the row's tokens' counts, which never decrease."""
    used = -(-int(visible[-1]) // shape.block_size) if len(visible) else 0
    spans: list[Span] = []
    for first_block in range(0, used, span_blocks):
        ids = table[first_block : min(first_block + span_blocks, used)]
        counts = np.clip(visible - first_block * shape.block_size, 0, len(ids) * shape.block_size)
        pieces = _pieces(counts, tokens.start, first=first_block == 0)
        spans.append(Span(_gather_index(ids[None], shape).reshape(-1), tuple(pieces)))
    return spans


def _pieces(counts: LongArray, first_token: int, *, first: bool) -> list[Piece]:
    """Cut tokens where the growth of their counts changes.

    Growth 0 is a rectangle, growth 1 a rectangle and a triangle. Tokens that see nothing come first
    and get no piece.
    """
    pieces: list[Piece] = []
    growth = np.diff(counts)
    start = int((counts == 0).sum())
    while start < len(counts):
        end = _run_end(growth, start)
        tokens = slice(first_token + start, first_token + end)
        seen, length = int(counts[start]), end - start
        if length == 1 or growth[start] == 0:
            pieces.append(Piece(tokens, slice(0, seen), causal=False, first=first))
        else:
            if seen > 1:
                pieces.append(Piece(tokens, slice(0, seen - 1), causal=False, first=first))
            triangle = slice(seen - 1, seen - 1 + length)
            pieces.append(Piece(tokens, triangle, causal=True, first=first and seen == 1))
        start = end
    return pieces


def _run_end(growth: LongArray, start: int) -> int:
    """End of the longest run of tokens from `start` whose counts all grow by 0, or all by 1."""
    if start == len(growth) or growth[start] > 1:
        return start + 1
    others = np.flatnonzero(growth[start:] != growth[start])
    return start + 1 + (int(others[0]) if len(others) else len(growth) - start)

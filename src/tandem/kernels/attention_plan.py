"""Decides once per step, on the host, how paged attention reads its keys; all layers share it.

A row's blocks come in logical order, so the keys that a query sees are a prefix of the row's
gathered keys: every mask is a count, or two where there is a window. Decode rows of similar length
are gathered together (a `DecodeGroup`); other rows are cut into `Span`s of blocks and each span
into `Piece`s that need no mask at all (every query sees every key, or plain causal), or, where
there is a window, into `WindowSpan`s.

Gathers are of `pages` viewed as `[num_blocks * 2 * kv_heads, block_size, head_dim]`, in an order
that leaves each head's keys contiguous.
"""

import math
from dataclasses import dataclass

import numpy as np

from tandem.kernels.attention_windows import WindowSpan, window_spans
from tandem.kernels.gather_index import gather_index
from tandem.kernels.pages import PageShape
from tandem.plan.binding import IntArray, LongArray, TierAttention
from tandem.plan.seen_keys import SeenKeys, count_seen_keys

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
        num_keys: int64 [rows]; gathered keys up to the last that each row sees.
        num_hidden: int64 [rows]; those of them before its window.
        unused: int64 [u]; slots of the gathered `[2 * rows * kv_heads * pieces * slots]` that the
            longest row uses and another does not: they may hold anything, so they are cleared.
    """

    tokens: LongArray
    piece: int
    gather: LongArray
    slots: int
    num_keys: LongArray
    num_hidden: LongArray
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
        covered: every token's result is written at once; otherwise results begin at "saw no key".
        windows: rows with several tokens, or very long, that see a window; merged into the result.
    """

    num_tokens: int
    covered: bool
    decode: tuple[DecodeGroup, ...]
    spans: tuple[Span, ...]
    windows: tuple[WindowSpan, ...]


def plan_attention(att: TierAttention, shape: PageShape, window: int = 0) -> AttentionPlan:
    """Groups, spans and pieces for one tier's part of a lane.

    Args:
        window: positions that a token sees, its own included; 0: all before it.
    """
    seen = count_seen_keys(att, shape.block_size, window)
    block_bytes = shape.numel * 4
    blocks = _touched_blocks(seen.of(slice(0, att.num_decode)), shape.block_size)
    group_blocks = max(1, DECODE_GATHER_BYTES // block_bytes)
    decode = [
        _decode_group(rows, att.block_table, seen, shape)
        for rows in _group_rows(blocks, group_blocks)
    ]
    long_rows = [int(r) for r in np.flatnonzero(blocks > group_blocks)]
    span_blocks = max(1, SPAN_GATHER_BYTES // block_bytes)
    spans, windows = list[Span](), list[WindowSpan]()
    for row in [*long_rows, *range(att.num_decode, len(att.block_table))]:
        tokens = slice(int(att.query_start[row]), int(att.query_start[row + 1]))
        of_row, table = seen.of(tokens), att.block_table[row]
        if window:
            windows += window_spans(tokens, of_row, table, shape, span_blocks)
        else:
            spans += _row_spans(tokens, of_row.end, table, shape, span_blocks)
    covered = bool((seen.count > 0).all()) and not windows
    return AttentionPlan(len(seen.end), covered, tuple(decode), tuple(spans), tuple(windows))


def _touched_blocks(seen: SeenKeys, block_size: int) -> LongArray:
    """Blocks from the first key that each token sees to the last; 0 if it sees none."""
    touched = -(-seen.end // block_size) - seen.first // block_size
    return np.where(seen.count > 0, touched, 0)


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
    rows: LongArray, table: IntArray, seen: SeenKeys, shape: PageShape
) -> DecodeGroup:
    piece = math.gcd(GATHER_SLOTS, shape.block_size)
    per_block = shape.block_size // piece
    start = seen.first[rows] // piece
    pieces = -(-seen.end[rows] // piece) - start
    num_keys, num_hidden = seen.end[rows] - start * piece, seen.first[rows] - start * piece
    width = int(pieces.max())
    # Padding repeats the row's last piece: reading a block of another row would read bytes that
    # may be in flight.
    within = start[:, None] + np.minimum(np.arange(width), pieces[:, None] - 1)
    block, part = np.divmod(within, per_block)
    ids = np.take_along_axis(table[rows], block, 1)
    # [2, rows, kv_heads, width]
    gather = gather_index(ids, shape) * per_block + part[:, None, :]
    slots = piece if width > 1 else int(num_keys.max())
    unused = _unused_slots(num_keys, width * slots, shape)
    return DecodeGroup(rows, piece, gather.reshape(-1), slots, num_keys, num_hidden, unused)


def _unused_slots(num_keys: LongArray, padded: int, shape: PageShape) -> LongArray:
    row, slot = np.nonzero(np.arange(int(num_keys.max())) >= num_keys[:, None])
    part = np.arange(2)[:, None, None]
    head = np.arange(shape.kv_heads)[:, None]
    return (((part * len(num_keys) + row) * shape.kv_heads + head) * padded + slot).reshape(-1)


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
        spans.append(Span(gather_index(ids[None], shape).reshape(-1), tuple(pieces)))
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

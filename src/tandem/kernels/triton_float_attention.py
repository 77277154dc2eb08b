"""Attention over pages of floats as a Triton kernel, decode and prefill (contracts 7 and 8).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_floats import narrow_halves, narrow_values
from tandem.kernels.triton_tiles import (
    LOG2_E,
    add_weights,
    blocks_of_step,
    bounded,
    count_end_steps,
    divisor_and_logs,
    end_step,
    powers_of_rows,
    split_bounds,
    whole_steps,
)

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

# Weights of products in float16 are at most 2^12, so that small ones keep their bits.
_HALF_SHIFT, _NO_SHIFT = tl.constexpr(12), tl.constexpr(0)
_MASKED, _WHOLE = tl.constexpr(True), tl.constexpr(False)


@triton.jit
def _load_step(
    pages,
    blocks,  # int32, or int32 [KEYS]: see `blocks_of_step`
    start,  # first key of the step
    is_used,  # bool [KEYS]
    head,  # of 2 * KV_HEADS: K heads, then V heads
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """A step's K or V of one head: [KEYS, PAD_DIM], 0 where nothing is used.

    In one block, only its first place is of 64 bits.
    """
    key, dim = tl.arange(0, KEYS), tl.arange(0, PAD_DIM)
    heads = blocks.to(tl.int64) * (2 * KV_HEADS) + head
    if BLOCK_SIZE % KEYS == 0:
        first = (heads * BLOCK_SIZE + start % BLOCK_SIZE) * HEAD_DIM
        place = pages + first + (key[:, None] * HEAD_DIM + dim[None, :])
    else:
        first = (heads * BLOCK_SIZE + (start + key) % BLOCK_SIZE) * HEAD_DIM
        place = pages + first[:, None] + dim[None, :]
    if MASKED:
        rows = tl.load(place, mask=is_used[:, None] & (dim < HEAD_DIM)[None, :], other=0)
    elif HEAD_DIM < PAD_DIM:
        rows = tl.load(place, mask=(key >= 0)[:, None] & (dim < HEAD_DIM)[None, :], other=0)
    else:
        rows = tl.load(place)
    return rows


@triton.jit
def _factors(
    rows,  # as loaded
    query,  # of the type that products are taken in
    HALVES: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """Of that type, whatever the pages hold."""
    # One return: Triton compiles what follows a return within an `if`, too, and compares types.
    if HALVES:
        factors = narrow_halves(rows, HAS_E4M3)
    elif rows.dtype == tl.uint8:
        factors = narrow_values(rows).to(query.dtype)
    else:
        factors = rows.to(query.dtype)
    return factors


@triton.jit
def _add_step(
    start,
    blocks,
    query,  # [rows, PAD_DIM]
    row_scale,  # float32 [rows]: scores times it are logarithms in base 2
    soft_cap,
    pages,
    kv_head,
    low,
    high,
    begin,
    to_key,
    highest,
    total,
    sums,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    MASKED: tl.constexpr,
    HAS_CAP: tl.constexpr,
    USE_DOT: tl.constexpr,
    HALVES: tl.constexpr,
    HAS_E4M3: tl.constexpr,
):
    """Highest, total and sums with a step's keys."""
    keys = start + tl.arange(0, KEYS)
    is_used = (keys >= begin) & (keys < to_key)
    k = _load_step(
        pages, blocks, start, is_used, kv_head,
        KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, KEYS, MASKED,
    )  # fmt: skip
    k = _factors(k, query, HALVES, HAS_E4M3)
    if USE_DOT:
        scores = tl.dot(query, tl.trans(k), input_precision="ieee")
    else:
        scores = tl.sum(query.to(tl.float32)[:, None, :] * k.to(tl.float32)[None, :, :], axis=2)
    if HAS_CAP:
        scores = bounded(scores * row_scale[:, None], soft_cap * LOG2_E)
        row_scale = tl.full(row_scale.shape, 1.0, tl.float32)
    if MASKED:
        sees = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None]) & is_used[None, :]
        scores = tl.where(sees, scores, float("-inf"))
    v = _load_step(
        pages, blocks, start, is_used, KV_HEADS + kv_head,
        KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, KEYS, MASKED,
    )  # fmt: skip
    v = _factors(v, query, HALVES, HAS_E4M3)
    SHIFT: tl.constexpr = _HALF_SHIFT if HALVES else _NO_SHIFT
    weights, highest, total, shrink = add_weights(scores, row_scale, highest, total, MASKED, SHIFT)
    sums = sums * shrink[:, None]
    if USE_DOT:
        sums = tl.dot(weights.to(query.dtype), v, sums, input_precision="ieee")
    else:
        sums += tl.sum(weights[:, :, None] * v.to(tl.float32)[None, :, :], axis=1)
    return highest, total, sums


# Compiled once for an engine, whatever the step: its numbers are not built in.
@triton.jit(do_not_specialize=["num_tokens", "table_width", "scale", "soft_cap"])
def attend_floats(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    pages,  # one layer; uint8 if it holds e4m3
    tile_row,  # int32 [tiles]; line of `table`
    tile_token,  # int32 [tiles]; first token
    tile_count,  # int32 [tiles]; tokens, at most ROWS // GROUP
    first,  # int32 [tokens]; first of the row's keys that each token sees
    end,  # int32 [tokens]; behind the last; a token without keys has end == first
    table,  # int32 [rows, table_width]
    out,  # float32 [splits, tokens, KV_HEADS * GROUP, HEAD_DIM]
    lse,  # float32 [splits, tokens, KV_HEADS * GROUP]
    num_tokens,
    table_width,
    scale,  # positive
    soft_cap,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,  # a power of two at or above HEAD_DIM
    BLOCK_SIZE: tl.constexpr,
    ROWS: tl.constexpr,  # a power of two, for as many tokens as fit with all of their GROUP
    KEYS: tl.constexpr,  # of a step, a power of two
    LEAST_KEYS: tl.constexpr,  # of a split, but for a row's last
    HAS_CAP: tl.constexpr,
    USE_DOT: tl.constexpr,  # matrix units; ROWS, KEYS and PAD_DIM are then at least 16
    HALVES: tl.constexpr,  # of e4m3: products are taken in float16, which has its values exactly
    HAS_E4M3: tl.constexpr,  # the device converts e4m3
):
    """Grid: [tiles, KV_HEADS, splits]. Softmax in base 2; `lse` comes out as natural logarithm.

    Blocks' ids are fetched a step ahead: keys, which are fetched before they are used, wait for
    nothing. Ids fetched two steps ahead would keep Triton from fetching keys early.
    """
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(tile_row + tile).to(tl.int64)
    count = tl.load(tile_count + tile)
    place = tl.arange(0, ROWS)
    token = (tl.load(tile_token + tile) + place // GROUP).to(tl.int64)
    is_row = place // GROUP < count
    head = token * (KV_HEADS * GROUP) + kv_head * GROUP + place % GROUP
    low = tl.load(first + token, mask=is_row, other=0)
    high = tl.load(end + token, mask=is_row, other=0)
    begin, from_key, to_key = split_bounds(low, high, split, KEYS, LEAST_KEYS)
    whole_from, whole_to = whole_steps(low, high, is_row, from_key, to_key, KEYS)
    blocks_of_row, last = table + row * table_width, to_key - 1

    dim = tl.arange(0, PAD_DIM)
    element = head[:, None] * HEAD_DIM + dim[None, :]
    is_element = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    query = tl.load(q + element, mask=is_element, other=0.0)
    row_scale = tl.zeros([ROWS], tl.float32) + scale * LOG2_E
    if HALVES:
        power, inverse = powers_of_rows(query)
        query = (query.to(tl.float32) * inverse[:, None]).to(tl.float16)
        row_scale = row_scale * power
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, PAD_DIM], tl.float32)
    if whole_to > whole_from:
        blocks = blocks_of_step(blocks_of_row, whole_from, last, BLOCK_SIZE, KEYS)
        for start in range(whole_from, whole_to, KEYS):
            next_blocks = blocks_of_step(blocks_of_row, start + KEYS, last, BLOCK_SIZE, KEYS)
            highest, total, sums = _add_step(
                start, blocks, query, row_scale, soft_cap, pages, kv_head, low, high, begin,
                to_key, highest, total, sums, KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, KEYS,
                _WHOLE, HAS_CAP, USE_DOT, HALVES, HAS_E4M3,
            )  # fmt: skip
            blocks = next_blocks
    ends = count_end_steps(from_key, to_key, whole_from, whole_to, KEYS)
    for i in tl.range(0, ends, num_stages=1):  # pyright: ignore[reportGeneralTypeIssues]
        start = end_step(i, from_key, whole_from, whole_to, KEYS)
        blocks = blocks_of_step(blocks_of_row, start, last, BLOCK_SIZE, KEYS)
        highest, total, sums = _add_step(
            start, blocks, query, row_scale, soft_cap, pages, kv_head, low, high, begin,
            to_key, highest, total, sums, KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, KEYS,
            _MASKED, HAS_CAP, USE_DOT, HALVES, HAS_E4M3,
        )  # fmt: skip

    SHIFT: tl.constexpr = _HALF_SHIFT if HALVES else _NO_SHIFT
    divisor, logs = divisor_and_logs(highest, total, SHIFT)
    first_out = split.to(tl.int64) * num_tokens * (KV_HEADS * GROUP)
    tl.store(out + first_out * HEAD_DIM + element, sums / divisor[:, None], mask=is_element)
    tl.store(lse + first_out + head, logs, mask=is_row)

"""Attention over quantized pages as a Triton kernel, decode and prefill (contracts 7 and 8).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_tiles import LOG2_E, bounded, divisor_and_logs, split_bounds

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_NO_SHIFT = tl.constexpr(0)
_CODE_RUN = tl.constexpr(32)  # see `memory.quantized_page`


@triton.jit
def _page_rows(
    table,  # int32; the row's block ids
    keys,  # int [keys]; places among the row's keys
    is_used,  # bool [keys]
    BLOCK_SIZE: tl.constexpr,
):
    """Block and offset in it of some of a row's keys: int64 [keys] each; 0 where not used."""
    block = tl.load(table + keys // BLOCK_SIZE, mask=is_used, other=0).to(tl.int64)
    return block, (keys % BLOCK_SIZE).to(tl.int64)


@triton.jit
def _load_codes(
    pages,  # uint8
    pairs,  # float16; the same memory
    block,
    offset,
    is_used,
    head,  # of 2 * KV_HEADS: K heads, then V heads
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    PAD_DIM: tl.constexpr,
    CODE_BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    ROW_ELEMENTS: tl.constexpr,
):
    """Some tokens' K or V of one head, dequantized in registers: float32 [keys, PAD_DIM].

    Elements come in the order of `_dims`; a scale and a minimum are read once for their group.
    """
    GROUPS: tl.constexpr = ROW_ELEMENTS // GROUP_SIZE
    ROW_BYTES: tl.constexpr = ROW_ELEMENTS * CODE_BITS // 8
    GROUP_BYTES: tl.constexpr = GROUP_SIZE * CODE_BITS // 8
    CODE_BYTES: tl.constexpr = 2 * KV_HEADS * BLOCK_SIZE * ROW_BYTES
    PAGE_BYTES: tl.constexpr = CODE_BYTES + 2 * KV_HEADS * BLOCK_SIZE * GROUPS * 4
    KEYS: tl.constexpr = block.shape[0]
    PAD_GROUPS: tl.constexpr = PAD_DIM // GROUP_SIZE
    group = tl.arange(0, PAD_GROUPS)
    mask = is_used[:, None] & (group < GROUPS)[None, :]
    first_pair = (block * PAGE_BYTES + CODE_BYTES) // 2 + head * (GROUPS * 2 * BLOCK_SIZE) + offset
    pair = pairs + first_pair[:, None] + (group * (2 * BLOCK_SIZE))[None, :]
    scale = tl.load(pair, mask=mask, other=0.0).to(tl.float32)
    minimum = tl.load(pair + BLOCK_SIZE, mask=mask, other=0.0).to(tl.float32)
    first_byte = block * PAGE_BYTES + (head * BLOCK_SIZE + offset) * ROW_BYTES
    byte = tl.arange(0, GROUP_BYTES)
    code = pages + first_byte[:, None, None]
    code += (group * GROUP_BYTES)[None, :, None] + byte[None, None, :]
    codes = tl.load(code, mask=mask[:, :, None], other=0)
    if CODE_BITS == 4:
        codes = tl.reshape(tl.join(codes & 15, codes >> 4), [KEYS, PAD_GROUPS, GROUP_SIZE])
    values = codes.to(tl.float32) * scale[:, :, None] + minimum[:, :, None]
    return tl.reshape(values, [KEYS, PAD_DIM])


@triton.jit
def _scores(
    query,  # [rows, PAD_DIM]
    k,  # [keys, PAD_DIM]
    scale,
    soft_cap,
    HAS_CAP: tl.constexpr,
    USE_DOT: tl.constexpr,
):
    """Scaled, and bounded where there is a cap: float32 [rows, keys]."""
    if USE_DOT:
        scores = tl.dot(query, tl.trans(k.to(query.dtype)), input_precision="ieee")
    else:
        scores = tl.sum(query.to(tl.float32)[:, None, :] * k.to(tl.float32)[None, :, :], axis=2)
    scores = scores * scale
    if HAS_CAP:
        scores = bounded(scores, soft_cap)
    return scores


@triton.jit
def _dims(PAD_DIM: tl.constexpr, CODE_BITS: tl.constexpr):
    """Elements of a head in the order in which products take them: int32 [PAD_DIM].

    A byte of a 4-bit page holds two elements half a run apart, and so they stay side by side.
    """
    place = tl.arange(0, PAD_DIM)
    if CODE_BITS != 4:
        return place
    half: tl.constexpr = _CODE_RUN // 2
    byte = place // 2
    return byte // half * _CODE_RUN + place % 2 * half + byte % half


@triton.jit
def _add_keys(
    scores,  # float32 [rows, keys], in base 2; -inf where a row does not see a key
    v,  # [keys, PAD_DIM]
    highest,  # float32 [rows]; of the scores so far
    total,  # float32 [rows]; of their weights
    sums,  # float32 [rows, PAD_DIM]; of values by weights
    query,  # of the type that factors have
    USE_DOT: tl.constexpr,
):
    """Online softmax: highest, total and sums with some more keys."""
    higher = tl.maximum(highest, tl.max(scores, axis=1))
    base = tl.where(higher == float("-inf"), 0.0, higher)
    weights = tl.exp2(scores - base[:, None])
    shrink = tl.exp2(highest - base)
    total = total * shrink + tl.sum(weights, axis=1)
    if USE_DOT:
        added = tl.dot(weights.to(query.dtype), v.to(query.dtype), input_precision="ieee")
    else:
        added = tl.sum(weights[:, :, None] * v.to(tl.float32)[None, :, :], axis=1)
    return higher, total, sums * shrink[:, None] + added


# Compiled once for an engine, whatever the step: its numbers are not built in.
@triton.jit(do_not_specialize=["num_tokens", "table_width", "scale", "soft_cap"])
def attend_codes(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    pages,  # uint8; one layer
    pairs,  # the same memory as float16
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
    scale,
    soft_cap,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,  # a power of two at or above ROW_ELEMENTS
    BLOCK_SIZE: tl.constexpr,
    CODE_BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    ROW_ELEMENTS: tl.constexpr,
    ROWS: tl.constexpr,  # a power of two, for as many tokens as fit with all of their GROUP
    KEYS: tl.constexpr,  # keys at a time, a power of two
    LEAST_KEYS: tl.constexpr,  # of a split, but for a row's last
    HAS_CAP: tl.constexpr,
    USE_DOT: tl.constexpr,  # matrix units; ROWS, KEYS and PAD_DIM are then at least 16
):
    """Grid: [tiles, KV_HEADS, splits]. Softmax in base 2; `lse` comes out as natural logarithm."""
    tile, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = tl.load(tile_row + tile).to(tl.int64)
    count = tl.load(tile_count + tile)
    place = tl.arange(0, ROWS)
    token = (tl.load(tile_token + tile) + place // GROUP).to(tl.int64)
    is_row = place // GROUP < count
    head = token * (KV_HEADS * GROUP) + kv_head * GROUP + place % GROUP
    dim = _dims(PAD_DIM, CODE_BITS)
    element = head[:, None] * HEAD_DIM + dim[None, :]
    is_element = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    query = tl.load(q + element, mask=is_element, other=0.0)

    low = tl.load(first + token, mask=is_row, other=0)
    high = tl.load(end + token, mask=is_row, other=0)
    begin, from_key, to_key = split_bounds(low, high, split, KEYS, LEAST_KEYS)

    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, PAD_DIM], tl.float32)
    for start in range(from_key, to_key, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_used = (keys >= begin) & (keys < to_key)
        block, offset = _page_rows(table + row * table_width, keys, is_used, BLOCK_SIZE)
        k = _load_codes(
            pages, pairs, block, offset, is_used, kv_head,
            BLOCK_SIZE, KV_HEADS, PAD_DIM, CODE_BITS, GROUP_SIZE, ROW_ELEMENTS,
        )  # fmt: skip
        v = _load_codes(
            pages, pairs, block, offset, is_used, KV_HEADS + kv_head,
            BLOCK_SIZE, KV_HEADS, PAD_DIM, CODE_BITS, GROUP_SIZE, ROW_ELEMENTS,
        )  # fmt: skip
        scores = _scores(query, k, scale, soft_cap, HAS_CAP, USE_DOT)
        sees = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None]) & is_used[None, :]
        scores = tl.where(sees, scores * LOG2_E, float("-inf"))
        highest, total, sums = _add_keys(scores, v, highest, total, sums, query, USE_DOT)

    divisor, logs = divisor_and_logs(highest, total, _NO_SHIFT)
    first_out = split.to(tl.int64) * num_tokens * (KV_HEADS * GROUP)
    tl.store(out + first_out * HEAD_DIM + element, sums / divisor[:, None], mask=is_element)
    tl.store(lse + first_out + head, logs, mask=is_row)

"""Attention over the canonical KV page as Triton kernels (contracts 7 and 8).

One kernel serves decode and prefill. A program has a *tile*: a few consecutive query tokens of one
row, and of each token all query heads that share a KV head, as the rows of one small product. It
goes over the keys that any of its tokens sees, several at a time, with a running maximum (online
softmax), reading blocks where they lie. Keys of long rows are cut into *splits*, each a program of
its own; their results are merged by log-sum-exp, as results of different tiers are.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_floats import narrow_values

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_LN_2 = tl.constexpr(0.6931471805599453)
_LOG2_E = tl.constexpr(1.4426950408889634)
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
def _load_float(
    pages,
    block,  # int64 [keys]
    offset,  # int64 [keys]
    is_used,  # bool [keys]
    head,  # of 2 * kv_heads: K heads, then V heads
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
):
    """Some tokens' K or V of one head: [keys, PAD_DIM], 0 where nothing is used."""
    dim = tl.arange(0, PAD_DIM)
    row = (block * (2 * KV_HEADS) + head) * BLOCK_SIZE + offset
    mask = is_used[:, None] & (dim < HEAD_DIM)[None, :]
    place = pages + row[:, None] * HEAD_DIM + dim[None, :]
    if pages.dtype.element_ty == tl.uint8:
        values = narrow_values(tl.load(place, mask=mask, other=0))
    else:
        values = tl.load(place, mask=mask, other=0.0)
    return values


@triton.jit
def _load_codes(
    pages,  # uint8
    pairs,  # float16; the same memory
    block,
    offset,
    is_used,
    head,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    PAD_DIM: tl.constexpr,
    CODE_BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    ROW_ELEMENTS: tl.constexpr,
):
    """`_load_float` of quantized pages, dequantized in registers: float32 [keys, PAD_DIM].

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
def _load_rows(
    pages,
    pairs,
    block,
    offset,
    is_used,
    head,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    CODE_BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    ROW_ELEMENTS: tl.constexpr,
):
    """Some tokens' K or V of one head, whatever the pages hold."""
    # One return: Triton compiles what follows a return within an `if`, too, and compares types.
    if CODE_BITS == 0:
        values = _load_float(
            pages, block, offset, is_used, head, BLOCK_SIZE, KV_HEADS, HEAD_DIM, PAD_DIM
        )
    else:
        values = _load_codes(
            pages, pairs, block, offset, is_used, head,
            BLOCK_SIZE, KV_HEADS, PAD_DIM, CODE_BITS, GROUP_SIZE, ROW_ELEMENTS,
        )  # fmt: skip
    return values


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
        # tanh(x) = 2 sigmoid(2x) - 1
        scores = soft_cap * (2.0 * tl.sigmoid(2.0 * scores / soft_cap) - 1.0)
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
def _split_keys(
    span,  # keys of a row, from the first that is read to behind the last
    KEYS: tl.constexpr,
    LEAST_KEYS: tl.constexpr,
):
    """Keys of each of the row's splits, in whole steps: each row divides its own among them.

    By numbers in the device's memory alone, so that a launch need not know how long rows are.
    """
    share = tl.maximum(tl.cdiv(span, tl.num_programs(2)), LEAST_KEYS)
    return tl.cdiv(share, KEYS) * KEYS


@triton.jit
def _split_bounds(
    low,  # int32 [rows]; first key that each of a tile's rows sees
    high,  # int32 [rows]; behind its last; at or below `low` if it sees none
    split,  # this program's
    KEYS: tl.constexpr,
    LEAST_KEYS: tl.constexpr,
):
    """First key that any row sees, and this split's first and, behind its last, end.

    Memory that no row sees may hold anything, and is not read.
    """
    stop = tl.max(tl.where(high > low, high, 0), axis=0)
    begin = tl.min(tl.where(high > low, low, stop), axis=0)
    aligned = begin // KEYS * KEYS
    split_keys = _split_keys(stop - aligned, KEYS, LEAST_KEYS)
    from_key = aligned + split * split_keys
    return begin, from_key, tl.minimum(from_key + split_keys, stop)


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
def attend_tiles(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM]
    pages,  # one layer; uint8 if CODE_BITS, or if it holds e4m3
    pairs,  # the same memory as float16 if CODE_BITS; else unused
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
    PAD_DIM: tl.constexpr,  # a power of two at or above HEAD_DIM, or ROW_ELEMENTS
    BLOCK_SIZE: tl.constexpr,
    CODE_BITS: tl.constexpr,  # 0: floats
    GROUP_SIZE: tl.constexpr,  # of quantized pages
    ROW_ELEMENTS: tl.constexpr,  # of quantized pages
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
    begin, from_key, to_key = _split_bounds(low, high, split, KEYS, LEAST_KEYS)

    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, PAD_DIM], tl.float32)
    for start in range(from_key, to_key, KEYS):
        keys = start + tl.arange(0, KEYS)
        is_used = (keys >= begin) & (keys < to_key)
        block, offset = _page_rows(table + row * table_width, keys, is_used, BLOCK_SIZE)
        k = _load_rows(
            pages, pairs, block, offset, is_used, kv_head,
            KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, CODE_BITS, GROUP_SIZE, ROW_ELEMENTS,
        )  # fmt: skip
        v = _load_rows(
            pages, pairs, block, offset, is_used, KV_HEADS + kv_head,
            KV_HEADS, HEAD_DIM, PAD_DIM, BLOCK_SIZE, CODE_BITS, GROUP_SIZE, ROW_ELEMENTS,
        )  # fmt: skip
        scores = _scores(query, k, scale, soft_cap, HAS_CAP, USE_DOT)
        sees = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None]) & is_used[None, :]
        scores = tl.where(sees, scores * _LOG2_E, float("-inf"))
        highest, total, sums = _add_keys(scores, v, highest, total, sums, query, USE_DOT)

    saw = total > 0.0
    some = tl.where(saw, total, 1.0)
    first_out = split.to(tl.int64) * num_tokens * (KV_HEADS * GROUP)
    tl.store(out + first_out * HEAD_DIM + element, sums / some[:, None], mask=is_element)
    logs = tl.where(saw, (highest + tl.log2(some)) * _LN_2, float("-inf"))
    tl.store(lse + first_out + head, logs, mask=is_row)


@triton.jit(do_not_specialize=["num_tokens"])
def merge_tiers(
    places,  # int32 [2, num_tokens]; each token's place here and there, -1: it has no keys there
    here,  # float32 [tokens here, HEADS, HEAD_DIM]
    here_lse,  # float32 [tokens here, HEADS]
    there,  # as here
    there_lse,
    merged,  # [num_tokens, HEADS, HEAD_DIM]
    num_tokens,
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
):
    """Grid: [num_tokens, HEADS]. Attention over the keys of two tiers (contract 8); 0 of a token
    without keys.
    """
    token, head = tl.program_id(0), tl.program_id(1)
    a = tl.load(places + token).to(tl.int64)
    b = tl.load(places + num_tokens + token).to(tl.int64)
    row_a, row_b = tl.maximum(a, 0) * HEADS + head, tl.maximum(b, 0) * HEADS + head
    log_a = tl.where(a >= 0, tl.load(here_lse + row_a), float("-inf"))
    log_b = tl.where(b >= 0, tl.load(there_lse + row_b), float("-inf"))
    highest = tl.maximum(log_a, log_b)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    share_a, share_b = tl.exp2((log_a - base) * _LOG2_E), tl.exp2((log_b - base) * _LOG2_E)
    total = share_a + share_b
    dim = tl.arange(0, PAD_DIM)
    is_used = dim < HEAD_DIM
    value_a = tl.load(here + row_a * HEAD_DIM + dim, mask=is_used, other=0.0)
    value_b = tl.load(there + row_b * HEAD_DIM + dim, mask=is_used, other=0.0)
    # another token's, where this one has none, must not come in, whatever it holds
    value_a, value_b = tl.where(a >= 0, value_a, 0.0), tl.where(b >= 0, value_b, 0.0)
    result = (value_a * share_a + value_b * share_b) / tl.where(total > 0.0, total, 1.0)
    place = (token.to(tl.int64) * HEADS + head) * HEAD_DIM + dim
    tl.store(merged + place, result.to(merged.dtype.element_ty), mask=is_used)


@triton.jit(do_not_specialize=["num_rows", "splits"])
def merge_splits(
    parts,  # float32 [splits, rows, HEAD_DIM]; rows: tokens x heads
    part_lse,  # float32 [splits, rows]
    out,  # float32 [rows, HEAD_DIM]
    lse,  # float32 [rows]
    num_rows,
    splits,
    HEAD_DIM: tl.constexpr,
    PAD_DIM: tl.constexpr,
    PAD_SPLITS: tl.constexpr,  # a power of two, at least `splits`
):
    """Grid: [rows]. Attention over all keys from that over disjoint splits (contract 8)."""
    row = tl.program_id(0).to(tl.int64)
    number = tl.arange(0, PAD_SPLITS)
    is_split = number < splits
    place = number.to(tl.int64) * num_rows + row
    logs = tl.load(part_lse + place, mask=is_split, other=float("-inf"))
    highest = tl.max(logs, axis=0)
    base = tl.where(highest == float("-inf"), 0.0, highest)
    weights = tl.exp2((logs - base) * _LOG2_E)
    total = tl.sum(weights, axis=0)
    dim = tl.arange(0, PAD_DIM)
    mask = is_split[:, None] & (dim < HEAD_DIM)[None, :]
    values = tl.load(parts + place[:, None] * HEAD_DIM + dim[None, :], mask=mask, other=0.0)
    result = tl.sum(values * weights[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + row * HEAD_DIM + dim, result, mask=dim < HEAD_DIM)
    tl.store(lse + row, tl.where(total > 0.0, base + tl.log2(total) * _LN_2, float("-inf")))

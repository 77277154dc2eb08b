"""Decode over quantized pages as a Triton kernel that multiplies by codes (contracts 7 and 8).

Codes become float16, which has them exactly, and are never dequantized: of a group of elements that
share a scale and a minimum, the product of a query with its codes is multiplied by the scale, and
the minimum by the sum of the query's elements; a weight takes the scale of its key's values with
it, and the minima are summed by weights. For rows of two groups of 64; of 4 bits the low halves of
bytes (`a` below) and the high ones (`b`) are products of their own.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

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
# pyright: reportAssignmentType=false, reportArgumentType=false

_MASKED, _WHOLE = tl.constexpr(True), tl.constexpr(False)
_ALL, _LOW, _HIGH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # parts of bytes
_GROUP_SIZE = tl.constexpr(64)
_CODE_RUN = tl.constexpr(32)  # see `memory.quantized_page`
# Weights are at most 2^SHIFT, so that small ones, times scales, keep their bits as float16; more
# would overflow with scales that values may have.
_SHIFT_OF_8_BITS, _SHIFT_OF_4_BITS = tl.constexpr(6), tl.constexpr(4)


@triton.jit
def _halves(
    codes,  # uint8
    PART: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):
    """Codes as float16.

    By assembly four at once: a code as the low byte of 0x6400, which is 1024, makes 1024 + code.
    """
    if ASSEMBLY:
        HEAD: tl.constexpr = """{
            .reg .b32 m, x;
            mov.b32 m, 0x64006400;
            """
        TAIL: tl.constexpr = """
            prmt.b32 $0, x, 0x64646464, 0x4140;
            prmt.b32 $1, x, 0x64646464, 0x4342;
            sub.f16x2 $0, $0, m;
            sub.f16x2 $1, $1, m;
            }"""
        if PART == _LOW:
            OWN: tl.constexpr = "and.b32 x, $2, 0x0f0f0f0f;"
        elif PART == _HIGH:
            OWN: tl.constexpr = "shr.b32 x, $2, 4; and.b32 x, x, 0x0f0f0f0f;"
        else:
            OWN: tl.constexpr = "mov.b32 x, $2;"
        halves = tl.inline_asm_elementwise(
            HEAD + OWN + TAIL, "=&r,=&r,r", [codes], dtype=tl.float16, is_pure=True, pack=4
        )
    elif PART == _LOW:
        halves = (codes & 15).to(tl.float16)
    elif PART == _HIGH:
        halves = (codes >> 4).to(tl.float16)
    else:
        halves = codes.to(tl.float16)
    return halves


@triton.jit
def _load_pairs(
    pairs,
    blocks,  # int32, or int32 [KEYS]: see `blocks_of_step`
    start,  # first key of the step
    is_used,  # bool [KEYS]
    head,  # of 2 * KV_HEADS: K heads, then V heads
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    CODE_BITS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """Scale and minimum of a step's K or V in the first group, then the second: float16 [KEYS]."""
    CODE_BYTES: tl.constexpr = 2 * KV_HEADS * BLOCK_SIZE * 16 * CODE_BITS
    PAGE_BYTES: tl.constexpr = CODE_BYTES + 2 * KV_HEADS * BLOCK_SIZE * 8
    place = pairs + (blocks.to(tl.int64) * PAGE_BYTES + CODE_BYTES) // 2
    place += head * (4 * BLOCK_SIZE) + (start + tl.arange(0, KEYS)) % BLOCK_SIZE
    if MASKED:
        scale_0 = tl.load(place, mask=is_used, other=0.0)
        minimum_0 = tl.load(place + BLOCK_SIZE, mask=is_used, other=0.0)
        scale_1 = tl.load(place + 2 * BLOCK_SIZE, mask=is_used, other=0.0)
        minimum_1 = tl.load(place + 3 * BLOCK_SIZE, mask=is_used, other=0.0)
    else:
        scale_0, minimum_0 = tl.load(place), tl.load(place + BLOCK_SIZE)
        scale_1, minimum_1 = tl.load(place + 2 * BLOCK_SIZE), tl.load(place + 3 * BLOCK_SIZE)
    return scale_0, minimum_0, scale_1, minimum_1


@triton.jit
def _load_codes(
    pages,
    blocks,
    start,
    is_used,
    head,
    group,
    KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    CODE_BITS: tl.constexpr,
    MASKED: tl.constexpr,
):
    """A group of a step's K or V: uint8 [KEYS, 8 * CODE_BITS]."""
    ROW_BYTES: tl.constexpr = 16 * CODE_BITS
    CODE_BYTES: tl.constexpr = 2 * KV_HEADS * BLOCK_SIZE * ROW_BYTES
    PAGE_BYTES: tl.constexpr = CODE_BYTES + 2 * KV_HEADS * BLOCK_SIZE * 8
    key, byte = tl.arange(0, KEYS), tl.arange(0, 8 * CODE_BITS)
    first = blocks.to(tl.int64) * PAGE_BYTES + head * (BLOCK_SIZE * ROW_BYTES)
    first += group * (8 * CODE_BITS)
    if BLOCK_SIZE % KEYS == 0:
        first += start % BLOCK_SIZE * ROW_BYTES
        place = pages + first + (key[:, None] * ROW_BYTES + byte[None, :])
    else:
        first += (start + key) % BLOCK_SIZE * ROW_BYTES
        place = pages + first[:, None] + byte[None, :]
    return tl.load(place, mask=is_used[:, None], other=0) if MASKED else tl.load(place)


@triton.jit
def _products(
    query_a, query_b, codes, CODE_BITS: tl.constexpr, ASSEMBLY: tl.constexpr
):  # fmt: skip
    """Of queries with a group's codes: float32 [rows, KEYS]."""
    if CODE_BITS == 8:
        products = tl.dot(query_a, tl.trans(_halves(codes, _ALL, ASSEMBLY)))
    else:
        products = tl.dot(query_a, tl.trans(_halves(codes, _LOW, ASSEMBLY)))
        products = tl.dot(query_b, tl.trans(_halves(codes, _HIGH, ASSEMBLY)), products)
    return products


@triton.jit
def _add_codes(
    weights, codes, sums_a, sums_b, shrink, CODE_BITS: tl.constexpr, ASSEMBLY: tl.constexpr
):  # fmt: skip
    """Sums of a group's codes by weights, with a step's."""
    if CODE_BITS == 8:
        sums_a = tl.dot(weights, _halves(codes, _ALL, ASSEMBLY), sums_a * shrink[:, None])
    else:
        sums_a = tl.dot(weights, _halves(codes, _LOW, ASSEMBLY), sums_a * shrink[:, None])
        sums_b = tl.dot(weights, _halves(codes, _HIGH, ASSEMBLY), sums_b * shrink[:, None])
    return sums_a, sums_b


@triton.jit
def _add_step(
    start, blocks, ks0, km0, ks1, km1, vs0, vm0, vs1, vm1,  # scales, minima: `_load_pairs`
    qa0, qb0, qa1, qb1, total_0, total_1,  # queries of each group, and sums of their elements
    row_scale, soft_cap, pages, kv_head, low, high, begin, to_key,
    highest, total, a0, b0, a1, b1, m0, m1,
    KV_HEADS: tl.constexpr, BLOCK_SIZE: tl.constexpr, KEYS: tl.constexpr,
    CODE_BITS: tl.constexpr, MASKED: tl.constexpr, HAS_CAP: tl.constexpr, SHIFT: tl.constexpr,
    ASSEMBLY: tl.constexpr,
):  # fmt: skip
    """Highest, total, sums of codes by weights and scales, and of minima by weights (m)."""
    keys = start + tl.arange(0, KEYS)
    is_used = (keys >= begin) & (keys < to_key)
    v_head = KV_HEADS + kv_head
    k0 = _load_codes(
        pages, blocks, start, is_used, kv_head, 0, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, MASKED
    )
    k1 = _load_codes(
        pages, blocks, start, is_used, kv_head, 1, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, MASKED
    )
    v0 = _load_codes(
        pages, blocks, start, is_used, v_head, 0, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, MASKED
    )
    v1 = _load_codes(
        pages, blocks, start, is_used, v_head, 1, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, MASKED
    )
    scores = _products(qa0, qb0, k0, CODE_BITS, ASSEMBLY) * ks0.to(tl.float32)[None, :]
    scores += _products(qa1, qb1, k1, CODE_BITS, ASSEMBLY) * ks1.to(tl.float32)[None, :]
    scores += total_0[:, None] * km0.to(tl.float32)[None, :]
    scores += total_1[:, None] * km1.to(tl.float32)[None, :]
    if HAS_CAP:
        scores = bounded(scores * row_scale[:, None], soft_cap * LOG2_E)
        row_scale = tl.full(row_scale.shape, 1.0, tl.float32)
    if MASKED:
        sees = (keys[None, :] >= low[:, None]) & (keys[None, :] < high[:, None]) & is_used[None, :]
        scores = tl.where(sees, scores, float("-inf"))
    weights, highest, total, shrink = add_weights(scores, row_scale, highest, total, MASKED, SHIFT)
    m0 = m0 * shrink + tl.sum(weights * vm0.to(tl.float32)[None, :], axis=1)
    m1 = m1 * shrink + tl.sum(weights * vm1.to(tl.float32)[None, :], axis=1)
    w0 = (weights * vs0.to(tl.float32)[None, :]).to(tl.float16)
    w1 = (weights * vs1.to(tl.float32)[None, :]).to(tl.float16)
    a0, b0 = _add_codes(w0, v0, a0, b0, shrink, CODE_BITS, ASSEMBLY)
    a1, b1 = _add_codes(w1, v1, a1, b1, shrink, CODE_BITS, ASSEMBLY)
    return highest, total, a0, b0, a1, b1, m0, m1


@triton.jit
def _part_of_query(q, line, dim, is_row, inverse, HEAD_DIM: tl.constexpr):
    """Elements of queries, as float16 by rows' powers of two: [rows, elements]."""
    mask = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    part = tl.load(q + line + dim[None, :], mask=mask, other=0.0)
    return (part.to(tl.float32) * inverse[:, None]).to(tl.float16)


@triton.jit
def _store_part(out, line, dim, is_row, sums, minima, divisor, HEAD_DIM: tl.constexpr):
    mask = is_row[:, None] & (dim < HEAD_DIM)[None, :]
    tl.store(out + line + dim[None, :], (sums + minima[:, None]) / divisor[:, None], mask=mask)


# Compiled once for an engine, whatever the step: its numbers are not built in.
@triton.jit(do_not_specialize=["num_tokens", "table_width", "scale", "soft_cap"])
def attend_groups(
    q,  # [tokens, KV_HEADS * GROUP, HEAD_DIM], of 16 bits
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
    scale,  # positive
    soft_cap,
    KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,  # more than 96, at most 128
    BLOCK_SIZE: tl.constexpr,
    CODE_BITS: tl.constexpr,
    ROWS: tl.constexpr,  # a power of two, at least 16, for a tile's tokens with all of their GROUP
    KEYS: tl.constexpr,  # of a step, a power of two, at least 16
    LEAST_KEYS: tl.constexpr,  # of a split, but for a row's last
    HAS_CAP: tl.constexpr,
    ASSEMBLY: tl.constexpr,  # none in Triton's interpreter
):
    """Grid: [tiles, KV_HEADS, splits]. Softmax in base 2; `lse` comes out as natural logarithm.

    Blocks' ids, scales and minima are fetched a step ahead, as in `attend_floats`.
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
    v_head = KV_HEADS + kv_head

    PART: tl.constexpr = _GROUP_SIZE if CODE_BITS == 8 else _GROUP_SIZE // 2
    HALF_RUN: tl.constexpr = _CODE_RUN // 2
    SHIFT: tl.constexpr = _SHIFT_OF_8_BITS if CODE_BITS == 8 else _SHIFT_OF_4_BITS
    dim = tl.arange(0, PART)
    if CODE_BITS == 4:
        dim = dim // HALF_RUN * _CODE_RUN + dim % HALF_RUN  # of the low halves
    line, all_dims = head[:, None] * HEAD_DIM, tl.arange(0, 2 * _GROUP_SIZE)
    is_element = is_row[:, None] & (all_dims < HEAD_DIM)[None, :]
    power, inverse = powers_of_rows(
        tl.load(q + line + all_dims[None, :], mask=is_element, other=0.0)
    )
    row_scale = scale * LOG2_E * power
    ones = tl.full([PART, KEYS], 1.0, tl.float16)  # by products, so that sums lie as scores do
    qa0 = _part_of_query(q, line, dim, is_row, inverse, HEAD_DIM)
    qa1 = _part_of_query(q, line, dim + _GROUP_SIZE, is_row, inverse, HEAD_DIM)
    total_0, total_1 = tl.dot(qa0, ones), tl.dot(qa1, ones)
    qb0, qb1 = qa0, qa1
    if CODE_BITS == 4:
        qb0 = _part_of_query(q, line, dim + HALF_RUN, is_row, inverse, HEAD_DIM)
        qb1 = _part_of_query(q, line, dim + _GROUP_SIZE + HALF_RUN, is_row, inverse, HEAD_DIM)
        total_0, total_1 = tl.dot(qb0, ones, total_0), tl.dot(qb1, ones, total_1)
    total_0, total_1 = tl.max(total_0, axis=1), tl.max(total_1, axis=1)
    highest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    a0 = tl.zeros([ROWS, PART], tl.float32)
    a1, b0, b1 = a0, a0, a0
    m0 = tl.zeros([ROWS], tl.float32)
    m1 = m0
    if whole_to > whole_from:
        blocks = blocks_of_step(blocks_of_row, whole_from, last, BLOCK_SIZE, KEYS)
        every = tl.arange(0, KEYS) >= 0
        ks0, km0, ks1, km1 = _load_pairs(
            pairs, blocks, whole_from, every, kv_head, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _WHOLE
        )
        vs0, vm0, vs1, vm1 = _load_pairs(
            pairs, blocks, whole_from, every, v_head, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _WHOLE
        )
        for start in range(whole_from, whole_to, KEYS):
            ahead = start + KEYS
            next_blocks = blocks_of_step(blocks_of_row, ahead, last, BLOCK_SIZE, KEYS)
            nks0, nkm0, nks1, nkm1 = _load_pairs(
                pairs, next_blocks, ahead, every, kv_head,
                KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _WHOLE,
            )  # fmt: skip
            nvs0, nvm0, nvs1, nvm1 = _load_pairs(
                pairs, next_blocks, ahead, every, v_head,
                KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _WHOLE,
            )  # fmt: skip
            highest, total, a0, b0, a1, b1, m0, m1 = _add_step(
                start, blocks, ks0, km0, ks1, km1, vs0, vm0, vs1, vm1,
                qa0, qb0, qa1, qb1, total_0, total_1, row_scale, soft_cap, pages, kv_head,
                low, high, begin, to_key, highest, total, a0, b0, a1, b1, m0, m1,
                KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _WHOLE, HAS_CAP, SHIFT, ASSEMBLY,
            )  # fmt: skip
            blocks = next_blocks
            ks0, km0, ks1, km1 = nks0, nkm0, nks1, nkm1
            vs0, vm0, vs1, vm1 = nvs0, nvm0, nvs1, nvm1
    ends = count_end_steps(from_key, to_key, whole_from, whole_to, KEYS)
    for i in tl.range(0, ends, num_stages=1):  # pyright: ignore[reportGeneralTypeIssues]
        start = end_step(i, from_key, whole_from, whole_to, KEYS)
        blocks = blocks_of_step(blocks_of_row, start, last, BLOCK_SIZE, KEYS)
        keys = start + tl.arange(0, KEYS)
        is_used = (keys >= begin) & (keys < to_key)
        ks0, km0, ks1, km1 = _load_pairs(
            pairs, blocks, start, is_used, kv_head, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _MASKED
        )
        vs0, vm0, vs1, vm1 = _load_pairs(
            pairs, blocks, start, is_used, v_head, KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _MASKED
        )
        highest, total, a0, b0, a1, b1, m0, m1 = _add_step(
            start, blocks, ks0, km0, ks1, km1, vs0, vm0, vs1, vm1,
            qa0, qb0, qa1, qb1, total_0, total_1, row_scale, soft_cap, pages, kv_head,
            low, high, begin, to_key, highest, total, a0, b0, a1, b1, m0, m1,
            KV_HEADS, BLOCK_SIZE, KEYS, CODE_BITS, _MASKED, HAS_CAP, SHIFT, ASSEMBLY,
        )  # fmt: skip

    divisor, logs = divisor_and_logs(highest, total, SHIFT)
    first_out = split.to(tl.int64) * num_tokens * (KV_HEADS * GROUP)
    own = out + first_out * HEAD_DIM
    _store_part(own, line, dim, is_row, a0, m0, divisor, HEAD_DIM)
    _store_part(own, line, dim + _GROUP_SIZE, is_row, a1, m1, divisor, HEAD_DIM)
    if CODE_BITS == 4:
        _store_part(own, line, dim + HALF_RUN, is_row, b0, m0, divisor, HEAD_DIM)
        _store_part(own, line, dim + _GROUP_SIZE + HALF_RUN, is_row, b1, m1, divisor, HEAD_DIM)
    tl.store(lse + first_out + head, logs, mask=is_row)

"""Writing new keys and values into the canonical KV page, as Triton kernels (contracts 7 and 9)."""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_CODE_RUN = tl.constexpr(32)  # see `memory.quantized_page`
_LARGEST_HALF = tl.constexpr(65504.0)
_TO_INTEGER = tl.constexpr(8388608.0)  # added and taken away, rounds to the nearest even integer


@triton.jit
def narrow_codes(values):
    """e4m3 of float32 values as uint8: the same bytes as `narrow_floats.encode` gives.

    By integers: conversions of their own are on GPUs from SM89 on only.
    """
    bits = values.to(tl.uint32, bitcast=True)
    sign = (bits >> 24) & 0x80
    size = bits & 0x7FFFFFFF
    normal = (size + 0x7FFFF + ((size >> 20) & 1) - 0x3C000000) >> 20
    # below the least normal number, adding 2^14 rounds at 2^-9
    shifted = size.to(tl.float32, bitcast=True) + 16384.0
    code = tl.where(size < 0x3C800000, shifted.to(tl.uint32, bitcast=True) & 0xFF, normal)
    code = tl.where(size >= 0x43E00000, 0x7E, code)
    code = tl.where(size >= 0x7F800000, 0x7F, code)
    return (code | sign).to(tl.uint8)


@triton.jit
def append_floats(
    k,  # [tokens, KV_HEADS, HEAD_DIM]; a token's heads contiguous
    v,  # the same
    slots,  # int64 [tokens]
    pages,  # one layer; uint8 if it holds e4m3
    k_stride,  # elements from token to token
    v_stride,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAD_ROW: tl.constexpr,  # the power of two at or above KV_HEADS * HEAD_DIM
):
    """Grid: [tokens, 2]: keys, then values, in the pages' element type."""
    token, side = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot = tl.load(slots + token)
    place = tl.arange(0, PAD_ROW)
    is_used = place < KV_HEADS * HEAD_DIM
    if side == 0:
        values = tl.load(k + token * k_stride + place, mask=is_used)
    else:
        values = tl.load(v + token * v_stride + place, mask=is_used)
    head, dim = side * KV_HEADS + place // HEAD_DIM, place % HEAD_DIM
    row = (slot // BLOCK_SIZE * (2 * KV_HEADS) + head) * BLOCK_SIZE + slot % BLOCK_SIZE
    if pages.dtype.element_ty == tl.uint8:
        held = narrow_codes(values.to(tl.float32))
    else:
        held = values.to(pages.dtype.element_ty)
    tl.store(pages + row * HEAD_DIM + dim, held, mask=is_used)


@triton.jit
def _codes_of(values, minimum, scale, LEVELS: tl.constexpr):
    """Codes of float32 values, 0 where the scale is."""
    steps = tl.math.div_rn(values - minimum, tl.where(scale > 0.0, scale, 1.0))
    clamped = tl.minimum(tl.maximum(steps, 0.0), LEVELS)
    rounded = (clamped + _TO_INTEGER) - _TO_INTEGER
    return tl.where(scale > 0.0, rounded, 0.0).to(tl.uint8)


@triton.jit
def append_codes(
    k,  # [tokens, KV_HEADS, HEAD_DIM]; a token's heads contiguous
    v,  # the same
    slots,  # int64 [tokens]
    pages,  # uint8; one layer
    pairs,  # float16; the same memory
    k_stride,
    v_stride,
    BLOCK_SIZE: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    CODE_BITS: tl.constexpr,
    GROUP_SIZE: tl.constexpr,
    ROW_ELEMENTS: tl.constexpr,
):
    """Grid: [tokens, 2 * KV_HEADS, groups]; the same bytes as `quant.kv_format.quantize` gives.

    A group is held as two halves, since a byte of a 4-bit page has one code of each.
    """
    GROUPS: tl.constexpr = ROW_ELEMENTS // GROUP_SIZE
    ROW_BYTES: tl.constexpr = ROW_ELEMENTS * CODE_BITS // 8
    CODE_BYTES: tl.constexpr = 2 * KV_HEADS * BLOCK_SIZE * ROW_BYTES
    PAGE_BYTES: tl.constexpr = CODE_BYTES + 2 * KV_HEADS * BLOCK_SIZE * GROUPS * 4
    LEVELS: tl.constexpr = 2**CODE_BITS - 1
    token, head, group = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    half: tl.constexpr = _CODE_RUN // 2
    place = tl.arange(0, GROUP_SIZE // 2)
    low_dim = group * GROUP_SIZE + place // half * _CODE_RUN + place % half
    high_dim = low_dim + half
    # beyond the head, the last element is repeated
    low_place = tl.minimum(low_dim, HEAD_DIM - 1)
    high_place = tl.minimum(high_dim, HEAD_DIM - 1)
    if head < KV_HEADS:
        source = k + token * k_stride + head * HEAD_DIM
        low, high = tl.load(source + low_place), tl.load(source + high_place)
    else:
        source = v + token * v_stride + (head - KV_HEADS) * HEAD_DIM
        low, high = tl.load(source + low_place), tl.load(source + high_place)
    low, high = low.to(tl.float32), high.to(tl.float32)

    # x - x is not 0 for infinities and NaN
    is_odd = (low - low != 0.0) | (high - high != 0.0)
    is_finite = tl.max(is_odd.to(tl.int32), axis=0) == 0
    low, high = tl.where(is_finite, low, 0.0), tl.where(is_finite, high, 0.0)
    least = tl.minimum(tl.min(low, axis=0), tl.min(high, axis=0))
    most = tl.maximum(tl.max(low, axis=0), tl.max(high, axis=0))
    least = tl.minimum(tl.maximum(least, -_LARGEST_HALF), _LARGEST_HALF)
    most = tl.minimum(tl.maximum(most, -_LARGEST_HALF), _LARGEST_HALF)
    minimum = (least + 0.0).to(tl.float16)  # not -0
    span = tl.maximum(most - minimum.to(tl.float32), 0.0)
    scale = tl.math.div_rn(span, LEVELS * 1.0).to(tl.float16)
    low_codes = _codes_of(low, minimum.to(tl.float32), scale.to(tl.float32), LEVELS)
    high_codes = _codes_of(high, minimum.to(tl.float32), scale.to(tl.float32), LEVELS)

    slot = tl.load(slots + token)
    block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    codes = pages + block * PAGE_BYTES + (head * BLOCK_SIZE + offset) * ROW_BYTES
    if CODE_BITS == 8:
        tl.store(codes + low_dim, low_codes)
        tl.store(codes + high_dim, high_codes)
    else:
        tl.store(codes + group * (GROUP_SIZE // 2) + place, low_codes | (high_codes << 4))
    pair = pairs + (block * PAGE_BYTES + CODE_BYTES) // 2
    pair += (head * GROUPS + group) * (2 * BLOCK_SIZE) + offset
    tl.store(pair, tl.where(is_finite, scale.to(tl.float32), float("nan")).to(tl.float16))
    tl.store(
        pair + BLOCK_SIZE,
        tl.where(is_finite, minimum.to(tl.float32), float("nan")).to(tl.float16),
    )

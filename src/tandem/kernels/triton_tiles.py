"""What the kernels of attention share: a tile's keys, online softmax, rows as halves.

A program has a *tile*: a few consecutive query tokens of one row, and of each token all query heads
that share a KV head, as the rows of one small product. It goes over the keys that any of its tokens
sees, in *steps*, with a running maximum (online softmax), reading blocks where they lie. Steps of
which every row sees every key come first, without masks; then, in a loop of their own, the few at
the ends. Keys of long rows are cut into *splits*, each a program of its own; their results are
merged by log-sum-exp, as results of different tiers are.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false
# pyright: reportAttributeAccessIssue=false

LN_2 = tl.constexpr(0.6931471805599453)
LOG2_E = tl.constexpr(1.4426950408889634)


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
def split_bounds(
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
def whole_steps(
    low,
    high,
    is_row,  # bool [rows]; others are there to fill the product, and see what comes
    from_key,
    to_key,
    KEYS: tl.constexpr,
):
    """First key of a split's steps of which every row sees every key, and behind their last.

    Both are `from_key` where there are none; a row without any key leaves none.
    """
    all_low = tl.max(tl.where(is_row, low, 0), axis=0)
    all_high = tl.min(tl.where(is_row, high, to_key), axis=0)
    first = tl.cdiv(tl.maximum(all_low, from_key), KEYS) * KEYS
    end = tl.minimum(all_high, to_key) // KEYS * KEYS
    return tl.where(end > first, first, from_key), tl.where(end > first, end, from_key)


@triton.jit
def count_end_steps(from_key, to_key, whole_from, whole_to, KEYS: tl.constexpr):
    """Steps before and behind the whole ones."""
    return (whole_from - from_key) // KEYS + tl.maximum(tl.cdiv(to_key - whole_to, KEYS), 0)


@triton.jit
def end_step(i, from_key, whole_from, whole_to, KEYS: tl.constexpr):
    """First key of one of them: those before, then those behind."""
    before = (whole_from - from_key) // KEYS
    return tl.where(i < before, from_key + i * KEYS, whole_to + (i - before) * KEYS)


@triton.jit
def blocks_of_step(
    table,  # int32; the row's block ids
    start,  # first key of a step
    last,  # the last key that the program reads: what is fetched ahead stays inside
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Of the whole step where it lies in one block, else of each key: int32, or int32 [KEYS]."""
    key = start if BLOCK_SIZE % KEYS == 0 else start + tl.arange(0, KEYS)
    return tl.load(table + tl.minimum(key, last) // BLOCK_SIZE)


@triton.jit
def bounded(scores, cap):
    """Cap * tanh(scores / cap)."""
    return cap * (2.0 * tl.sigmoid(2.0 * scores / cap) - 1.0)  # tanh(x) = 2 sigmoid(2x) - 1


@triton.jit
def add_weights(
    scores,  # float32 [rows, keys]; -inf where a row does not see a key
    row_scale,  # float32 [rows], positive; what makes them logarithms in base 2
    highest,  # float32 [rows]; of the scaled scores so far
    total,  # float32 [rows]; of their weights
    MASKED: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """Online softmax: weights times 2^SHIFT, then highest and total with some more keys, and what
    earlier sums are to be multiplied by.

    The scale is applied with the exponent, in one instruction.
    """
    higher = tl.maximum(highest, tl.max(scores, axis=1) * row_scale)
    base = higher - SHIFT
    if MASKED:
        base = tl.where(higher == float("-inf"), 0.0, base)
    weights = tl.exp2(scores * row_scale[:, None] - base[:, None])
    shrink = tl.exp2(highest - SHIFT - base)
    return weights, higher, total * shrink + tl.sum(weights, axis=1), shrink


@triton.jit
def divisor_and_logs(highest, total, SHIFT: tl.constexpr):
    """What sums are to be divided by, and natural logarithms of rows' totals; -inf without keys."""
    saw = total > 0.0
    divisor = tl.where(saw, total, 1.0)
    return divisor, tl.where(saw, (highest - SHIFT + tl.log2(divisor)) * LN_2, float("-inf"))


@triton.jit
def powers_of_rows(rows):  # [rows, elements]
    """The power of two at or below each row's largest size, and its inverse; 1 of zeros.

    Rows times the inverse lose nothing as float16 that matters beside their largest element.
    """
    largest = tl.max(tl.abs(rows.to(tl.float32)), axis=1)
    bits = largest.to(tl.int32, bitcast=True) & 0x7F800000
    bits = tl.where(bits == 0, 0x3F800000, bits)
    return bits.to(tl.float32, bitcast=True), (0x7F000000 - bits).to(tl.float32, bitcast=True)

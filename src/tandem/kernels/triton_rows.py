"""What a layer does to each token between products, as Triton kernels: one launch where torch needs
two to five, which is what decode of few requests waits for.
"""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_GELU_SLOPE = tl.constexpr(0.7978845608028654)  # sqrt(2 / pi)
_GELU_CUBIC = tl.constexpr(0.044715)


@triton.jit
def rotate_heads(
    heads,  # [tokens, HEADS, HEAD_DIM]; a token's heads contiguous
    cosines,  # float32 [tokens, HEAD_DIM], contiguous
    sines,  # the same; the first half negated
    rotated,  # as `heads`, contiguous
    stride,  # of `heads`, elements from token to token
    HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS_AT_ONCE: tl.constexpr,
    PAD_HALF: tl.constexpr,  # the power of two at or above HEAD_DIM / 2
):
    """Grid: [tokens, HEADS / HEADS_AT_ONCE]. Element i of a head turns with i + HEAD_DIM / 2, in
    float32.
    """
    HALF: tl.constexpr = HEAD_DIM // 2
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS_AT_ONCE + tl.arange(0, HEADS_AT_ONCE)
    pair = tl.arange(0, PAD_HALF)
    is_pair = pair < HALF
    is_used = (head < HEADS)[:, None] & is_pair[None, :]
    place = head[:, None] * HEAD_DIM + pair[None, :]
    source = heads + token * stride + place
    first = tl.load(source, mask=is_used, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=is_used, other=0.0).to(tl.float32)
    turn = token * HEAD_DIM + pair
    cos_first = tl.load(cosines + turn, mask=is_pair, other=0.0)[None, :]
    cos_second = tl.load(cosines + turn + HALF, mask=is_pair, other=0.0)[None, :]
    sin_first = tl.load(sines + turn, mask=is_pair, other=0.0)[None, :]
    sin_second = tl.load(sines + turn + HALF, mask=is_pair, other=0.0)[None, :]
    target = rotated + token * (HEADS * HEAD_DIM) + place
    turned = first * cos_first + second * sin_first
    tl.store(target, turned.to(rotated.dtype.element_ty), mask=is_used)
    turned = second * cos_second + first * sin_second
    tl.store(target + HALF, turned.to(rotated.dtype.element_ty), mask=is_used)


@triton.jit
def gate_rows(
    gate,  # [tokens, columns]; a token's columns contiguous
    up,  # the same
    gated,  # the same, contiguous
    gate_stride,  # elements from token to token
    up_stride,
    columns,
    IS_SILU: tl.constexpr,  # else GELU by tanh
    COLUMNS_AT_ONCE: tl.constexpr,
):
    """Grid: [tokens, columns / COLUMNS_AT_ONCE]. `activation(gate) * up`, the activation taken in
    float32 and rounded to the gate's type before it is multiplied, as torch does.
    """
    token = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * COLUMNS_AT_ONCE + tl.arange(0, COLUMNS_AT_ONCE)
    is_used = place < columns
    value = tl.load(gate + token * gate_stride + place, mask=is_used, other=0.0).to(tl.float32)
    if IS_SILU:
        active = value / (1.0 + tl.exp(-value))
    else:
        inner = _GELU_SLOPE * (value + _GELU_CUBIC * value * value * value)
        # x (1 + tanh(y)) / 2 = x sigmoid(2y)
        active = value * tl.sigmoid(2.0 * inner)
    rounded = active.to(gated.dtype.element_ty).to(tl.float32)
    factor = tl.load(up + token * up_stride + place, mask=is_used, other=0.0).to(tl.float32)
    tl.store(
        gated + token * columns + place, (rounded * factor).to(gated.dtype.element_ty), mask=is_used
    )

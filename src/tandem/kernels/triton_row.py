"""The product of one row with a quantized weight, as a Triton kernel (contract 9).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_decoders import wide_bytes, wide_halves

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_SPAN = tl.constexpr(8)  # bytes of codes that a thread takes of each output at a time


@triton.jit
def multiply_row(
    x,  # [inputs]
    codes,  # uint8 [outputs, bytes of a row]
    scales,  # float16 [outputs, groups]
    zeros,  # uint8 [outputs, groups]
    bias,  # [outputs] if HAS_BIAS; else unused
    y,  # [outputs]
    outputs,
    groups,
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,  # 4 or 8
    OUTPUTS: tl.constexpr,
    SPANS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    ASM: tl.constexpr,  # see `triton_decoders`
):
    """`((q - z) s) @ x` without matrix units, of which one row fills an eighth: in float32.

    What decoding adds to codes is taken off with the zero, times the sum of the inputs.
    Grid: [tiles of outputs].
    """
    GROUP_BYTES: tl.constexpr = GROUP * CODE_BITS // 8
    tile = tl.program_id(0)
    row_bytes = groups * GROUP_BYTES
    # 64 bits only for where the tile begins; outputs there are not are read as the last one
    out = tl.arange(0, OUTPUTS)[None, :, None]
    near = tl.minimum(tile * OUTPUTS + out, outputs - 1) - tile * OUTPUTS
    codes += (tile * OUTPUTS).to(tl.int64) * row_bytes
    scales += (tile * OUTPUTS).to(tl.int64) * groups
    zeros += (tile * OUTPUTS).to(tl.int64) * groups
    number = tl.arange(0, SPANS)[:, None, None]
    byte = tl.arange(0, _SPAN)[None, None, :]
    sums = tl.zeros([SPANS, OUTPUTS, 1], tl.float32)
    for begin in range(0, row_bytes, SPANS * _SPAN):
        span = begin + number * _SPAN
        is_in = span < row_bytes
        code = tl.load(codes + (near * row_bytes + span + byte), mask=is_in, other=0)
        of_group = near * groups + span // GROUP_BYTES
        scale = tl.load(scales + of_group, mask=is_in, other=0.0).to(tl.float32)
        zero = tl.load(zeros + of_group, mask=is_in, other=0).to(tl.float32)
        if CODE_BITS == 4:
            # 16 bytes are a run of 32 elements: see `quant.packing`
            taken = x + (begin * 2 + (number // 2 * 32 + number % 2 * _SPAN + byte))
            low_x = tl.load(taken, mask=is_in, other=0.0).to(tl.float32)
            high_x = tl.load(taken + 16, mask=is_in, other=0.0).to(tl.float32)
            low, high = wide_halves(code, ASM)
            part = tl.sum(low * low_x + high * high_x, axis=2, keep_dims=True)
            less = (zero + 128.0) * tl.sum(low_x + high_x, axis=2, keep_dims=True)
        else:
            own_x = tl.load(x + (span + byte), mask=is_in, other=0.0).to(tl.float32)
            part = tl.sum((wide_bytes(code, ASM) - 32768.0) * own_x, axis=2, keep_dims=True)
            less = zero * tl.sum(own_x, axis=2, keep_dims=True)
        sums += scale * (part - less)
    total = tl.sum(tl.sum(sums, axis=2), axis=0)
    out = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    if HAS_BIAS:
        total += tl.load(bias + out, mask=out < outputs, other=0.0).to(tl.float32)
    tl.store(y + out, total.to(y.dtype.element_ty), mask=out < outputs)

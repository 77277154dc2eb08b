"""Weights themselves, of codes, as a Triton kernel (contract 9).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_decoders import float_values, wide_bytes, wide_halves

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false
# pyright: reportArgumentType=false

SPAN_BYTES = 8  # of a thread: as many as make 16 bytes of elements of 16 bits, or twice so many
_SPAN = tl.constexpr(SPAN_BYTES)


@triton.jit
def dequantize_codes(
    codes,  # uint8 [outputs, bytes of a row]
    scales,  # float16 [outputs, groups]; float32 if codes are e4m3 floats
    zeros,  # uint8 [outputs, groups]; of floats there are none
    weight,  # [outputs, inputs]
    size,  # of codes, in bytes
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,
    SPANS: tl.constexpr,  # of a program
    ASM: tl.constexpr,  # see `triton_decoders`
):
    """`(q - z) s`, of floats `q s`, in the type of `weight`.

    Rows are whole groups, and so the weight is one long row. Grid: [pieces of it].
    """
    GROUP_BYTES: tl.constexpr = GROUP * CODE_BITS // 8
    begin = tl.program_id(0).to(tl.int64) * (SPANS * _SPAN)
    number = tl.arange(0, SPANS)[:, None]
    span, byte = number * _SPAN, tl.arange(0, _SPAN)[None, :]
    is_in = span < size - begin
    code = tl.load(codes + begin + (span + byte), mask=is_in, other=0)
    of_group = begin // GROUP_BYTES + span // GROUP_BYTES
    scale = tl.load(scales + of_group, mask=is_in, other=0.0).to(tl.float32)
    if CODE_BITS == 4:
        zero = tl.load(zeros + of_group, mask=is_in, other=0).to(tl.float32) + 128.0
        low, high = wide_halves(code, ASM)
        # 16 bytes are a run of 32 elements: see `quant.packing`
        target = weight + begin * 2 + (number // 2 * 32 + number % 2 * _SPAN + byte)
        tl.store(target, ((low - zero) * scale).to(weight.dtype.element_ty), mask=is_in)
        tl.store(target + 16, ((high - zero) * scale).to(weight.dtype.element_ty), mask=is_in)
    else:
        if scales.dtype.element_ty == tl.float32:
            value = float_values(code, tl.float16, ASM).to(tl.float32)
        else:
            zero = tl.load(zeros + of_group, mask=is_in, other=0).to(tl.float32) + 32768.0
            value = wide_bytes(code, ASM) - zero
        target = weight + begin + (span + byte)
        tl.store(target, (value * scale).to(weight.dtype.element_ty), mask=is_in)

"""Codes of weights as numbers, four at a time in a few instructions, in Triton kernels.

A code that is put into the low bits of a float's mantissa is that float plus the code: what is
added to each code is taken away together with its zero, and nothing is converted. Triton's own
conversions go by float32 and one code at a time; products by codes spent most of their time there
(ADR 0101). Triton's interpreter has no assembly (ASM is then false) and computes the same numbers
plainly.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_floats import narrow_values

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false
# pyright: reportArgumentType=false


def _halves_text(magic: str, one: str, kind: str) -> str:
    """4 bytes: their low halves in $0 and $1, their high halves in $2 and $3; less $5 and $6."""
    return f"""
{{
.reg .b32 low0, low1, high0, high1, one;
mov.b32 one, {one};
prmt.b32 low0, $4, {magic}, 0x4140;
prmt.b32 low1, $4, {magic}, 0x4342;
shr.b32 high0, low0, 4;
shr.b32 high1, low1, 4;
and.b32 low0, low0, 0xFF0FFF0F;
and.b32 low1, low1, 0xFF0FFF0F;
lop3.b32 high0, high0, 0x000F000F, {magic[:4]}00{magic[4:6]}00, 0xEA;
lop3.b32 high1, high1, 0x000F000F, {magic[:4]}00{magic[4:6]}00, 0xEA;
fma.rn.{kind} $0, low0, one, $5;
fma.rn.{kind} $1, low1, one, $6;
fma.rn.{kind} $2, high0, one, $5;
fma.rn.{kind} $3, high1, one, $6;
}}
"""


def _floats_text(shift: int, mask: str, scale: str, kind: str) -> str:
    """4 bytes e4m3: their bits where the type has its own, times what exponents differ by.

    The product is one with -0 added, which zeros keep their sign by: 8.0 has no other of bfloat16.
    """
    return f"""
{{
.reg .b32 first, second, sign0, sign1, scale, none;
mov.b32 scale, {scale};
mov.b32 none, 0x80008000;
prmt.b32 first, $2, 0, 0x1404;
prmt.b32 second, $2, 0, 0x3424;
and.b32 sign0, first, none;
and.b32 sign1, second, none;
shr.b32 first, first, {shift};
shr.b32 second, second, {shift};
lop3.b32 first, first, {mask}, sign0, 0xEA;
lop3.b32 second, second, {mask}, sign1, 0xEA;
fma.rn.{kind} $0, first, scale, none;
fma.rn.{kind} $1, second, scale, none;
}}
"""


# 128 + q in bfloat16, 1024 + q in float16
_HALVES_BF16 = tl.constexpr(_halves_text("0x43434343", "0x3F803F80", "bf16x2"))
_HALVES_FP16 = tl.constexpr(_halves_text("0x64646464", "0x3C003C00", "f16x2"))
# e4m3 is bfloat16 times 2^-120, and float16 times 2^-8
_FLOATS_BF16 = tl.constexpr(_floats_text(4, "0x07F007F0", "0x7B807B80", "bf16x2"))
_FLOATS_FP16 = tl.constexpr(_floats_text(1, "0x3F803F80", "0x5C005C00", "f16x2"))
# Bytes do not fit bfloat16's mantissa: float32 2^23 + q less 2^23 + z, of which the upper half is
# a bfloat16.
_BYTES_BF16 = tl.constexpr("""
{
.reg .b32 a, b, c, d;
.reg .f32 fa, fb, fc, fd;
prmt.b32 a, $2, 0x4B000000, 0x7440;
prmt.b32 b, $2, 0x4B000000, 0x7441;
prmt.b32 c, $2, 0x4B000000, 0x7442;
prmt.b32 d, $2, 0x4B000000, 0x7443;
mov.b32 fa, a;
mov.b32 fb, b;
mov.b32 fc, c;
mov.b32 fd, d;
sub.f32 fa, fa, $3;
sub.f32 fb, fb, $4;
sub.f32 fc, fc, $5;
sub.f32 fd, fd, $6;
mov.b32 a, fa;
mov.b32 b, fb;
mov.b32 c, fc;
mov.b32 d, fd;
prmt.b32 $0, a, b, 0x7632;
prmt.b32 $1, c, d, 0x7632;
}
""")
_BYTES_FP16 = tl.constexpr("""
{
.reg .b32 first, second, one;
mov.b32 one, 0x3C003C00;
prmt.b32 first, $2, 0x64646464, 0x4140;
prmt.b32 second, $2, 0x64646464, 0x4342;
fma.rn.f16x2 $0, first, one, $3;
fma.rn.f16x2 $1, second, one, $4;
}
""")
# float32 128 + q of low halves, then of high ones
_WIDE_HALVES = tl.constexpr("""
{
.reg .b32 low, high;
shr.b32 high, $8, 4;
and.b32 low, $8, 0x0F0F0F0F;
and.b32 high, high, 0x0F0F0F0F;
prmt.b32 $0, low, 0x43000000, 0x7044;
prmt.b32 $1, low, 0x43000000, 0x7144;
prmt.b32 $2, low, 0x43000000, 0x7244;
prmt.b32 $3, low, 0x43000000, 0x7344;
prmt.b32 $4, high, 0x43000000, 0x7044;
prmt.b32 $5, high, 0x43000000, 0x7144;
prmt.b32 $6, high, 0x43000000, 0x7244;
prmt.b32 $7, high, 0x43000000, 0x7344;
}
""")
# float32 2^15 + q
_WIDE_BYTES = tl.constexpr("""
prmt.b32 $0, $4, 0x47000000, 0x7404;
prmt.b32 $1, $4, 0x47000000, 0x7414;
prmt.b32 $2, $4, 0x47000000, 0x7424;
prmt.b32 $3, $4, 0x47000000, 0x7434;
""")


@triton.jit
def load_zeros(zeros, place, dtype: tl.constexpr, CODE_BITS: tl.constexpr, ASM: tl.constexpr):
    """Zeros as `half_steps` or `byte_steps` takes them: with what is added to codes, negative; as
    float32 of bytes in bfloat16, whose sign is plain.
    """
    zero = tl.load(zeros + place)
    if not ASM:
        found = zero.to(tl.float32)
    elif dtype == tl.float16:
        found = (zero.to(tl.uint16) | 0xE400).to(tl.float16, bitcast=True)
    elif CODE_BITS == 4:
        found = (zero.to(tl.uint16) | 0xC300).to(tl.bfloat16, bitcast=True)
    else:
        found = zero.to(tl.float32) + 8388608.0
    return found


@triton.jit
def half_steps(code, zero, dtype: tl.constexpr, ASM: tl.constexpr):
    """`q - z` of the low and of the high halves of bytes, exact in the type."""
    if not ASM:
        low = ((code & 15).to(tl.float32) - zero).to(dtype)
        high = ((code >> 4).to(tl.float32) - zero).to(dtype)
    elif dtype == tl.float16:
        low, high = tl.inline_asm_elementwise(
            _HALVES_FP16, "=&r,=&r,=&r,=&r,r,r,r", [code, zero],
            dtype=(tl.float16, tl.float16), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low, high = tl.inline_asm_elementwise(
            _HALVES_BF16, "=&r,=&r,=&r,=&r,r,r,r", [code, zero],
            dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=4,
        )  # fmt: skip
    return low, high


@triton.jit
def byte_steps(code, zero, dtype: tl.constexpr, ASM: tl.constexpr):
    """`q - z` of bytes, exact in the type."""
    if not ASM:
        found = (code.to(tl.float32) - zero).to(dtype)
    elif dtype == tl.float16:
        found = tl.inline_asm_elementwise(
            _BYTES_FP16, "=&r,=&r,r,r,r", [code, zero], dtype=tl.float16, is_pure=True, pack=4
        )
    else:
        found = tl.inline_asm_elementwise(
            _BYTES_BF16, "=&r,=&r,r,r,r,r,r", [code, zero],
            dtype=tl.bfloat16, is_pure=True, pack=4,
        )  # fmt: skip
    return found


@triton.jit
def float_values(code, dtype: tl.constexpr, ASM: tl.constexpr):
    """Numbers of e4m3 codes, exact in the type; NaN, which no weight is, becomes 480."""
    if not ASM:
        found = narrow_values(code).to(dtype)
    elif dtype == tl.float16:
        found = tl.inline_asm_elementwise(
            _FLOATS_FP16, "=&r,=&r,r", [code], dtype=tl.float16, is_pure=True, pack=4
        )
    else:
        found = tl.inline_asm_elementwise(
            _FLOATS_BF16, "=&r,=&r,r", [code], dtype=tl.bfloat16, is_pure=True, pack=4
        )
    return found


@triton.jit
def wide_halves(code, ASM: tl.constexpr):
    """`128 + q` of the low and of the high halves of bytes, float32."""
    if ASM:
        low, high = tl.inline_asm_elementwise(
            _WIDE_HALVES, "=&r,=&r,=&r,=&r,=&r,=&r,=&r,=&r,r", [code],
            dtype=(tl.float32, tl.float32), is_pure=True, pack=4,
        )  # fmt: skip
    else:
        low, high = (code & 15).to(tl.float32) + 128.0, (code >> 4).to(tl.float32) + 128.0
    return low, high


@triton.jit
def wide_bytes(code, ASM: tl.constexpr):
    """`32768 + q` of bytes, float32."""
    if ASM:
        found = tl.inline_asm_elementwise(
            _WIDE_BYTES, "=&r,=&r,=&r,=&r,r", [code], dtype=tl.float32, is_pure=True, pack=4
        )
    else:
        found = code.to(tl.float32) + 32768.0
    return found

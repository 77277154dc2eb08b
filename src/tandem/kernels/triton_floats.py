"""Floats of one byte (e4m3) in Triton kernels, of keys and values as of weights.

Converted by integers (ADR 0041), except where products are in float16 and the device has an
instruction: only from compute capability 8.9 on, and Triton's compiler refuses the type before.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false


@triton.jit
def _halves_over_256(codes):
    """Numbers of e4m3 codes uint8, times 2^-8: float16."""
    size = (codes & 0x7F).to(tl.uint16) << 7
    sign = (codes & 0x80).to(tl.uint16) << 8
    nan = tl.where(size == 0x3F80, 0x7C00, 0).to(tl.uint16)
    return (size | sign | nan).to(tl.float16, bitcast=True)


@triton.jit
def narrow_values(codes):
    """Numbers of e4m3 codes uint8, float32."""
    return _halves_over_256(codes).to(tl.float32) * 256.0


@triton.jit
def narrow_halves(codes, HAS_E4M3: tl.constexpr):
    """Numbers of e4m3 codes uint8, float16, which has all of them."""
    if HAS_E4M3:
        halves = codes.to(tl.float8e4nv, bitcast=True).to(tl.float16)
    else:
        halves = _halves_over_256(codes) * tl.full([], 256.0, tl.float16)
    return halves

"""Floats of one byte (e4m3) in Triton kernels, of keys and values as of weights.

Converted by integers, on every device: only from compute capability 8.9 on is there an instruction,
and Triton's compiler refuses the type before (ADR 0041).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false


@triton.jit
def narrow_values(codes):
    """Numbers of e4m3 codes uint8, float32: as float16, which has them times 2^-8."""
    size = (codes & 0x7F).to(tl.uint16) << 7
    sign = (codes & 0x80).to(tl.uint16) << 8
    nan = tl.where(size == 0x3F80, 0x7C00, 0).to(tl.uint16)
    return (size | sign | nan).to(tl.float16, bitcast=True).to(tl.float32) * 256.0

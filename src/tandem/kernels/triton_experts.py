"""Products of tokens with the experts that they go to, as Triton kernels (contract 9).

Tokens' *places* (a token and one of its experts) come in the order of experts, with where each
expert's begin: the host need not know how many each has. A program has some outputs of one expert
and goes over that expert's places; those of an expert without any end at once.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_linear import add_codes, times

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

ALIGNED_BYTES = 16  # of offsets, where they are multiples: else memory is read byte by byte
ELSEWHERE = -(1 << 62)  # in place of an offset: the expert is another device's
_ELSEWHERE = tl.constexpr(ELSEWHERE)


@triton.jit
def _store(
    y,
    shares,
    sums,  # float32 [rows, outputs]
    place,  # int64 [rows]
    out,  # int64 [outputs]
    is_row,
    is_out,
    outputs,
    HAS_SHARES: tl.constexpr,
):
    if HAS_SHARES:
        sums *= tl.load(shares + place, mask=is_row, other=0.0)[:, None]
    target = y + place[:, None] * outputs + out[None, :]
    tl.store(target, sums.to(y.dtype.element_ty), mask=is_row[:, None] & is_out[None, :])


@triton.jit
def multiply_expert_codes(
    x,  # [places / PER_ROW, inputs]
    codes,  # uint8; of some expert: [outputs, bytes of a row]
    scales,  # float16; of that expert: [outputs, groups]; float32 if codes are e4m3 floats
    zeros,  # uint8; likewise; of floats there are none
    offsets,  # int64 [3, experts]: from there to each expert's; of codes in units
    order,  # int64 [places]; in the order of experts
    starts,  # int64 [experts + 1]; where in it each expert's begin
    shares,  # float32 [places] if HAS_SHARES; else unused
    y,  # [places, outputs]
    outputs,
    groups,
    PER_ROW: tl.constexpr,  # places that have a row of x in common
    UNIT: tl.constexpr,  # bytes of an offset's unit
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,  # 4 or 8
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP_GROUPS: tl.constexpr,  # at a time
    HAS_SHARES: tl.constexpr,
    USE_DOT: tl.constexpr,  # matrix units; ROWS and OUTPUTS are then at least 16
):
    """Each place's row by its expert's `(q - z) s`, perhaps by its share; 0 of experts elsewhere.

    Grid: [experts, tiles of outputs].
    """
    expert, tile = tl.program_id(0), tl.program_id(1)
    experts = tl.num_programs(0)
    first, last = tl.load(starts + expert), tl.load(starts + expert + 1)
    to_codes = tl.load(offsets + expert)
    is_here = to_codes != _ELSEWHERE
    codes += tl.where(is_here, to_codes, 0) * UNIT
    scales += tl.where(is_here, tl.load(offsets + experts + expert), 0)
    zeros += tl.where(is_here, tl.load(offsets + 2 * experts + expert), 0)
    stop = tl.where(is_here, groups, 0)
    out = (tile * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    is_out = out < outputs
    for begin in range(first, last, ROWS):
        at = begin + tl.arange(0, ROWS)
        is_row = at < last
        place = tl.load(order + at, mask=is_row, other=0)
        sums = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for group in range(0, stop, STEP_GROUPS):
            sums = add_codes(
                x, codes, scales, zeros, sums, place // PER_ROW, out, is_row, is_out,
                group, groups, groups, GROUP, CODE_BITS, OUTPUTS, STEP_GROUPS, USE_DOT,
            )  # fmt: skip
        _store(y, shares, sums, place, out, is_row, is_out, outputs, HAS_SHARES)


@triton.jit
def multiply_expert_floats(
    x,  # [places / PER_ROW, inputs]
    weights,  # of some expert: [outputs, inputs]
    offsets,  # int64 [experts]: from there to each expert's, in units
    order,
    starts,
    shares,
    y,
    outputs,
    inputs,
    PER_ROW: tl.constexpr,
    UNIT: tl.constexpr,  # elements of an offset's unit
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DEPTH: tl.constexpr,  # inputs at a time
    HAS_SHARES: tl.constexpr,
    USE_DOT: tl.constexpr,
):
    """`multiply_expert_codes` of weights that are not quantized, of the type of `x`."""
    expert, tile = tl.program_id(0), tl.program_id(1)
    first, last = tl.load(starts + expert), tl.load(starts + expert + 1)
    to_weights = tl.load(offsets + expert)
    is_here = to_weights != _ELSEWHERE
    weights += tl.where(is_here, to_weights, 0) * UNIT
    stop = tl.where(is_here, inputs, 0)
    out = (tile * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    is_out = out < outputs
    for begin in range(first, last, ROWS):
        at = begin + tl.arange(0, ROWS)
        is_row = at < last
        place = tl.load(order + at, mask=is_row, other=0)
        row = place // PER_ROW
        sums = tl.zeros([ROWS, OUTPUTS], tl.float32)
        for depth in range(0, stop, DEPTH):
            element = depth + tl.arange(0, DEPTH)
            is_element = element < inputs
            taken = tl.load(
                x + row[:, None] * inputs + element[None, :],
                mask=is_row[:, None] & is_element[None, :],
                other=0.0,
            )
            w = tl.load(
                weights + out[:, None] * inputs + element[None, :],
                mask=is_out[:, None] & is_element[None, :],
                other=0.0,
            )
            sums = times(taken, w.to(taken.dtype), sums, USE_DOT)
        _store(y, shares, sums, place, out, is_row, is_out, outputs, HAS_SHARES)

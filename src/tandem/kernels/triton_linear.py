"""Products with quantized weights as Triton kernels (contract 9): of experts, and of a
layer's maps in float32 or without matrix units. Others: `triton_groups.py`, `triton_row.py`.

A byte of 4-bit codes holds elements i and 16 + i of a run of 32, so its halves are two products of
half the depth each, with the inputs that belong to them: nothing is shuffled.

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_floats import narrow_values

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false

_RUN = tl.constexpr(32)  # elements among which the halves of 4-bit bytes lie: see `quant.packing`


@triton.jit
def _elements(BYTES: tl.constexpr, CODE_BITS: tl.constexpr):
    """Element of a row that each of its bytes holds; of 4-bit ones, in the low half."""
    byte = tl.arange(0, BYTES)
    if CODE_BITS == 8:
        return byte
    half: tl.constexpr = _RUN // 2
    return byte // half * _RUN + byte % half


@triton.jit
def times(
    x,  # [rows, depth]
    w,  # [outputs, depth]
    sums,  # float32 [rows, outputs]
    USE_DOT: tl.constexpr,
):
    """`sums + x @ w.T`."""
    if USE_DOT:
        return tl.dot(x, tl.trans(w), sums, input_precision="ieee")
    return sums + tl.sum(x.to(tl.float32)[:, None, :] * w.to(tl.float32)[None, :, :], axis=2)


@triton.jit
def _load_zeros(
    zeros,
    scales,  # of which type they are tells of what `q` are: float32 beside floats
    of_group,
    mask,
):
    """Zeros as float32; of floats, which have none, 0."""
    if scales.dtype.element_ty == tl.float32:
        found = tl.zeros_like(of_group).to(tl.float32)
    else:
        found = tl.load(zeros + of_group, mask=mask, other=0).to(tl.float32)
    return found


@triton.jit
def _steps(code, zero, scales):
    """`q - z` of codes of 8 bits, or of halves of them, or the floats that they are: float32."""
    if scales.dtype.element_ty == tl.float32:
        found = narrow_values(code)
    else:
        found = code.to(tl.float32) - zero
    return found


@triton.jit
def add_codes(
    x,  # [any rows, inputs]
    codes,  # uint8 [outputs, bytes of a row]
    scales,  # float16 [outputs, groups]; float32 if codes are e4m3 floats
    zeros,  # uint8 [outputs, groups]; of floats there are none
    sums,  # float32 [rows, OUTPUTS]
    row,  # int64 [rows]; of x
    out,  # int64 [OUTPUTS]
    is_row,
    is_out,
    group,  # first of some
    last,  # behind the last that may be read
    groups,
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP_GROUPS: tl.constexpr,
    USE_DOT: tl.constexpr,
):
    """`sums` and the products of STEP_GROUPS groups' inputs."""
    GROUP_BYTES: tl.constexpr = GROUP * CODE_BITS // 8
    STEP_BYTES: tl.constexpr = STEP_GROUPS * GROUP_BYTES
    step_group, byte = tl.arange(0, STEP_GROUPS), tl.arange(0, STEP_BYTES)
    element = _elements(STEP_BYTES, CODE_BITS)
    has_group = is_out[:, None] & (group + step_group < last)[None, :]
    of_group = out[:, None] * groups + (group + step_group)[None, :]
    scale = tl.load(scales + of_group, mask=has_group, other=0.0).to(tl.float32)[:, :, None]
    zero = _load_zeros(zeros, scales, of_group, has_group)[:, :, None]
    is_byte = group + byte // GROUP_BYTES < last
    of_byte = out[:, None] * (groups * GROUP_BYTES) + (group * GROUP_BYTES + byte)[None, :]
    code = tl.load(codes + of_byte, mask=is_out[:, None] & is_byte[None, :], other=0)
    code = tl.reshape(code, [OUTPUTS, STEP_GROUPS, GROUP_BYTES])
    of_input = row[:, None] * (groups * GROUP) + (group * GROUP + element)[None, :]
    has_input = is_row[:, None] & is_byte[None, :]
    low = code & 15 if CODE_BITS == 4 else code
    w = tl.reshape(_steps(low, zero, scales) * scale, [OUTPUTS, STEP_BYTES])
    taken = tl.load(x + of_input, mask=has_input, other=0.0)
    sums = times(taken, w.to(taken.dtype), sums, USE_DOT)
    if CODE_BITS == 4:
        w = tl.reshape(((code >> 4).to(tl.float32) - zero) * scale, [OUTPUTS, STEP_BYTES])
        taken = tl.load(x + of_input + _RUN // 2, mask=has_input, other=0.0)
        sums = times(taken, w.to(taken.dtype), sums, USE_DOT)
    return sums


# Compiled once for each format and size of tile, whatever the step: numbers are not built in.
@triton.jit(do_not_specialize=["rows", "split_groups"])
def multiply_codes(
    x,  # [rows, inputs]
    codes,  # uint8 [outputs, bytes of a row]
    scales,  # float16 [outputs, groups]; float32 if codes are e4m3 floats
    zeros,  # uint8 [outputs, groups]; of floats there are none
    bias,  # [outputs] if HAS_BIAS; else unused
    y,  # [splits, rows, outputs]
    rows,
    outputs,
    groups,
    split_groups,  # of a split; a multiple of STEP_GROUPS
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,  # 4 or 8
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    STEP_GROUPS: tl.constexpr,  # at a time
    HAS_BIAS: tl.constexpr,
    USE_DOT: tl.constexpr,  # matrix units; ROWS and OUTPUTS are then at least 16
):
    """`x @ ((q - z) s).T`, of floats `x @ (q s).T`; each weight is rounded to the type of `x`, sums
    are float32.

    Grid: [tiles of outputs, tiles of rows, splits]; a split has some of the groups.
    """
    tile, row_tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = (row_tile * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    out = (tile * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    is_row, is_out = row < rows, out < outputs
    first, last = split * split_groups, tl.minimum((split + 1) * split_groups, groups)
    sums = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for group in range(first, last, STEP_GROUPS):
        sums = add_codes(
            x, codes, scales, zeros, sums, row, out, is_row, is_out,
            group, last, groups, GROUP, CODE_BITS, OUTPUTS, STEP_GROUPS, USE_DOT,
        )  # fmt: skip
    if HAS_BIAS:
        sums += tl.load(bias + out, mask=is_out, other=0.0).to(tl.float32)[None, :]
    place = (split.to(tl.int64) * rows + row)[:, None] * outputs + out[None, :]
    tl.store(y + place, sums.to(y.dtype.element_ty), mask=is_row[:, None] & is_out[None, :])

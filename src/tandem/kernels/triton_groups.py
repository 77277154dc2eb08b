"""Products of rows of 16 bits with quantized weights on matrix units, as a Triton kernel
(contract 9).

Imported only where Triton is: see `triton_support.available`.
"""

import triton
import triton.language as tl

from tandem.kernels.triton_decoders import byte_steps, float_values, half_steps, load_zeros

# pyright: reportUnknownMemberType=false, reportUntypedFunctionDecorator=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false


@triton.jit
def _store(
    sums,  # float32 [outputs, rows]
    bias,
    y,
    out,
    place,
    mask,
    outputs,
    HAS_BIAS: tl.constexpr,
):
    if HAS_BIAS:
        sums += tl.load(bias + out, mask=out < outputs, other=0.0).to(tl.float32)[:, None]
    tl.store(y + place, sums.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _settle(
    sums,  # float32 [OUTPUTS, ROWS]
    bias,
    y,
    parts,
    counters,
    rows,
    outputs,
    splits,
    ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):
    """Store a program's sums; of a tile's splits the last to arrive adds all up, in their order,
    and sets their counter to zero again.
    """
    tile, row_tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    out = tile * OUTPUTS + tl.arange(0, OUTPUTS)
    row = row_tile * ROWS + tl.arange(0, ROWS)
    mask = (out < outputs)[:, None] & (row < rows)[None, :]
    place = row[None, :] * outputs + out[:, None]
    if splits == 1:
        _store(sums, bias, y, out, place, mask, outputs, HAS_BIAS)
    else:
        size = rows * outputs
        tl.store(parts + split * size + place, sums, mask=mask)
        tl.debug_barrier()  # all threads have stored before one of them counts
        counter = counters + row_tile * tl.num_programs(0) + tile
        before = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu")
        if before == splits - 1:
            total = tl.zeros([OUTPUTS, ROWS], tl.float32)
            for each in range(splits):
                # past the first cache, which does not see what other processors wrote
                part = parts + each * size + place
                total += tl.load(part, mask=mask, other=0.0, cache_modifier=".cg")
            _store(total, bias, y, out, place, mask, outputs, HAS_BIAS)
            tl.store(counter, 0)


# Compiled once for each format and size of tile, whatever the step: numbers are not built in.
@triton.jit(do_not_specialize=["rows", "split_groups", "splits"])
def multiply_groups(
    x,  # [rows, inputs] of 16 bits
    codes,  # uint8 [outputs, bytes of a row]
    scales,  # float16 [outputs, groups]; float32 if codes are e4m3 floats
    zeros,  # uint8 [outputs, groups]; of floats there are none
    bias,  # [outputs] if HAS_BIAS; else unused
    y,  # [rows, outputs]
    parts,  # float32 [splits, rows, outputs] if there are several; else unused
    counters,  # int32 [tiles], zeros before and after; unused likewise
    rows,
    outputs,
    groups,  # a multiple of STEP_GROUPS
    split_groups,  # of a split; likewise
    splits,
    GROUP: tl.constexpr,
    CODE_BITS: tl.constexpr,  # 4 or 8
    ROWS: tl.constexpr,  # at least 8
    OUTPUTS: tl.constexpr,
    STEP_GROUPS: tl.constexpr,  # at a time
    HAS_BIAS: tl.constexpr,
    ASM: tl.constexpr,  # see `triton_decoders`
):
    """The sum over groups of `s ((q - z) @ x)`, of floats of `s (q @ x)`: what is multiplied is
    exact in 16 bits, and scales meet sums of float32.

    Weights are the left operand, so that few rows need tiles of 8 only. A byte of 4-bit codes holds
    elements i and 16 + i of a run of 32, so its halves are two products of half the depth each,
    with the inputs that belong to them: nothing is shuffled.

    Grid: [tiles of outputs, tiles of rows, splits]; a split has some of the groups.
    """
    GROUP_BYTES: tl.constexpr = GROUP * CODE_BITS // 8
    dtype: tl.constexpr = x.dtype.element_ty
    tile, row_tile, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    # 64 bits only for where the tile begins; outputs there are not are read as the last one
    begin = (tile * OUTPUTS).to(tl.int64)
    near = tl.minimum(tile * OUTPUTS + tl.arange(0, OUTPUTS), outputs - 1) - tile * OUTPUTS
    row = row_tile * ROWS + tl.arange(0, ROWS)
    is_row = (row < rows)[None, :]
    byte = tl.arange(0, GROUP_BYTES)
    element = byte // 16 * 32 + byte % 16 if CODE_BITS == 4 else byte
    row_bytes = groups * GROUP_BYTES
    code_at = codes + begin * row_bytes + near[:, None] * row_bytes + byte[None, :]
    x_at = x + row[None, :] * (groups * GROUP) + element[:, None]
    scale_at = scales + begin * groups + near * groups
    zero_at = zeros + begin * groups + near * groups
    first = split * split_groups
    sums = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for step in range(first, tl.minimum(first + split_groups, groups), STEP_GROUPS):
        for number in tl.static_range(STEP_GROUPS):
            group = step + number
            code = tl.load(code_at + group * GROUP_BYTES)
            scale = tl.load(scale_at + group)
            taken = tl.load(x_at + group * GROUP, mask=is_row, other=0.0)
            if scales.dtype.element_ty == tl.float32:
                part = tl.dot(float_values(code, dtype, ASM), taken)
            else:
                zero = load_zeros(zero_at, group, dtype, CODE_BITS, ASM)
                zero = tl.broadcast_to(zero[:, None], [OUTPUTS, GROUP_BYTES])
                if CODE_BITS == 4:
                    low, high = half_steps(code, zero, dtype, ASM)
                    part = tl.dot(low, taken)
                    taken = tl.load(x_at + group * GROUP + 16, mask=is_row, other=0.0)
                    part = tl.dot(high, taken, part)
                else:
                    part = tl.dot(byte_steps(code, zero, dtype, ASM), taken)
            sums += part * scale.to(tl.float32)[:, None]
    _settle(sums, bias, y, parts, counters, rows, outputs, splits, ROWS, OUTPUTS, HAS_BIAS)

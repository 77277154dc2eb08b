"""Linear maps with quantized weights on a GPU.

Import this module only if `triton_support.available()`.
"""

from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from tandem.cost.quantized import most_rows_by_codes
from tandem.kernels.triton_dequantize import SPAN_BYTES, dequantize_codes
from tandem.kernels.triton_linear import multiply_codes
from tandem.kernels.triton_matrix_products import multiply_on_matrix_units
from tandem.kernels.triton_plan import MIN_DOT, power_of_two
from tandem.kernels.triton_support import TritonDevice
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.weight_format import WeightFormat

DEQUANTIZED_SPANS = 256  # in a program
_STEP_BYTES = 256  # of inputs of a row at a time
_SPLIT_INPUTS = 512  # a split with fewer costs more to add up than it spreads
_MAX_SPLITS = 16
_WAVES = 2  # programs per multiprocessor worth having


@dataclass(frozen=True, slots=True)
class ProductShape:
    """What `multiply_codes` is compiled with, and how many splits there are."""

    rows: int
    outputs: int
    step_groups: int
    splits: int
    split_groups: int
    stages: int
    warps: int


def cut_product(
    weight: WeightFormat,
    outputs: int,
    inputs: int,
    rows: int,
    element_bytes: int,
    unit: TritonDevice,
) -> ProductShape:
    """Tiles that give every multiprocessor work, of float32 or without matrix units.

    Args:
        element_bytes: of the type that is multiplied in.
    """
    padded = power_of_two(rows)
    if unit.has_dot:
        tile_rows, tile_outputs = MIN_DOT, 32  # what registers hold of float32
    else:
        tile_rows, tile_outputs = padded, max(4, 32 // padded)
    programs = -(-outputs // tile_outputs) * -(-rows // tile_rows)
    wanted = -(-_WAVES * unit.processors // programs)
    wanted = max(1, min(wanted, inputs // _SPLIT_INPUTS, _MAX_SPLITS))
    step_groups = max(1, _STEP_BYTES // element_bytes // weight.group)
    groups = inputs // weight.group
    split_groups = -(-groups // (wanted * step_groups)) * step_groups
    return ProductShape(
        tile_rows,
        tile_outputs,
        step_groups,
        -(-groups // split_groups),
        split_groups,
        unit.tiles.product_stages,
        unit.tiles.product_warps,
    )


def most_rows_fused(element_bytes: int, unit: TritonDevice) -> int:
    """Rows that are multiplied by codes; more by weights that are dequantized before, which costs
    the less for each row.
    """
    return most_rows_by_codes(element_bytes, has_dot=unit.has_dot)


def multiply(
    x: Tensor,  # [rows, inputs]
    weight: QuantizedWeight,
    bias: Tensor | None,  # [outputs]
    unit: TritonDevice,
) -> Tensor:
    """`x @ weight.T + bias` in the type of `x`, with sums in float32: [rows, outputs]."""
    x, rows = x.contiguous(), x.shape[0]
    if rows == 0:
        return x.new_empty((0, weight.outputs))
    if unit.has_dot and x.element_size() == 2:
        return multiply_on_matrix_units(x, weight, bias, unit.processors)
    shape = cut_product(weight.format, weight.outputs, weight.inputs, rows, x.element_size(), unit)
    divided = shape.splits > 1
    made = torch.float32 if divided else x.dtype
    y = x.new_empty((shape.splits, rows, weight.outputs), dtype=made)
    grid = (-(-weight.outputs // shape.outputs), -(-rows // shape.rows), shape.splits)
    cast("Any", multiply_codes)[grid](
        x,
        weight.q,
        weight.scales,
        weight.zeros,
        x if bias is None or divided else bias,
        y,
        rows,
        weight.outputs,
        weight.inputs // weight.format.group,
        shape.split_groups,
        GROUP=weight.format.group,
        CODE_BITS=weight.format.bits,
        ROWS=shape.rows,
        OUTPUTS=shape.outputs,
        STEP_GROUPS=shape.step_groups,
        HAS_BIAS=bias is not None and not divided,
        USE_DOT=unit.has_dot,
        num_stages=shape.stages,
        num_warps=shape.warps,
    )
    if not divided:
        return y[0]
    total = y.sum(0)
    return (total if bias is None else total.add_(bias)).to(x.dtype)


def dequantize(weight: QuantizedWeight, dtype: torch.dtype) -> Tensor:
    """Every element, rounded as by `QuantizedWeight.dequantize` and then to `dtype`."""
    made = torch.empty((weight.outputs, weight.inputs), dtype=dtype, device=weight.q.device)
    if made.numel() == 0:
        return made
    size = weight.q.numel()
    cast("Any", dequantize_codes)[(-(-size // (DEQUANTIZED_SPANS * SPAN_BYTES)),)](
        weight.q,
        weight.scales,
        weight.zeros,
        made,
        size,
        GROUP=weight.format.group,
        CODE_BITS=weight.format.bits,
        SPANS=DEQUANTIZED_SPANS,
        ASM=weight.q.is_cuda,
    )
    return made

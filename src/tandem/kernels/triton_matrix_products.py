"""Products of rows of 16 bits with quantized weights on a GPU's matrix units.

Import this module only if `triton_support.available()`.
"""

from typing import Any, cast

import torch
from torch import Tensor

from tandem.kernels.product_tiles import MOST_SPLIT_TILES, cut_groups
from tandem.kernels.triton_groups import multiply_groups
from tandem.kernels.triton_row import multiply_row
from tandem.quant.quantized_weight import QuantizedWeight

ROW_OUTPUTS, ROW_SPANS = 8, 128  # of a program that multiplies one row
ROW_WARPS = 4


def multiply_on_matrix_units(
    x: Tensor,  # [rows, inputs] of 16 bits; contiguous, with rows
    weight: QuantizedWeight,
    bias: Tensor | None,  # [outputs]
    processors: int,
) -> Tensor:
    """`x @ weight.T + bias` in the type of `x`, with sums in float32: [rows, outputs].

    One row needs no matrix units; of floats, tiles of 8 rows are as fast.
    """
    y = x.new_empty((x.shape[0], weight.outputs))
    if x.shape[0] == 1 and not weight.format.floats:
        _multiply_row(x, weight, bias, y)
    else:
        _multiply_groups(x, weight, bias, y, processors)
    return y


def _multiply_row(x: Tensor, weight: QuantizedWeight, bias: Tensor | None, y: Tensor) -> None:
    cast("Any", multiply_row)[(-(-weight.outputs // ROW_OUTPUTS),)](
        x,
        weight.q,
        weight.scales,
        weight.zeros,
        x if bias is None else bias,
        y,
        weight.outputs,
        weight.inputs // weight.format.group,
        GROUP=weight.format.group,
        CODE_BITS=weight.format.bits,
        OUTPUTS=ROW_OUTPUTS,
        SPANS=ROW_SPANS,
        HAS_BIAS=bias is not None,
        ASM=x.is_cuda,
        num_warps=ROW_WARPS,
    )


def _multiply_groups(
    x: Tensor, weight: QuantizedWeight, bias: Tensor | None, y: Tensor, processors: int
) -> None:
    rows, outputs = y.shape
    cut = cut_groups(weight.format, outputs, weight.inputs, rows, processors)
    counters, parts = _memory(x.device)
    if cut.splits > 1:
        parts = torch.empty((cut.splits, rows, outputs), dtype=torch.float32, device=x.device)
    tile = cut.tile
    cast("Any", multiply_groups)[(-(-outputs // tile.outputs), -(-rows // tile.rows), cut.splits)](
        x,
        weight.q,
        weight.scales,
        weight.zeros,
        x if bias is None else bias,
        y,
        parts,
        counters,
        rows,
        outputs,
        weight.inputs // weight.format.group,
        cut.split_groups,
        cut.splits,
        GROUP=weight.format.group,
        CODE_BITS=weight.format.bits,
        ROWS=tile.rows,
        OUTPUTS=tile.outputs,
        STEP_GROUPS=cut.step_groups,
        HAS_BIAS=bias is not None,
        ASM=x.is_cuda,
        num_stages=tile.stages,
        num_warps=tile.warps,
    )


def _memory(device: torch.device) -> tuple[Tensor, Tensor]:
    """Counters, and what stands for parts that there are not."""
    if device.type == "cuda":
        from tandem.devices.cuda.split_memory import split_memory

        return split_memory(device, MOST_SPLIT_TILES)
    counters = torch.zeros(MOST_SPLIT_TILES, dtype=torch.int32, device=device)  # interpreted
    return counters, counters.view(torch.float32)

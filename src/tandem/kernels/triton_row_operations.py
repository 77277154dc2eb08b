"""Rotation and gated activations on a GPU, in one launch each.

Import this module only if `triton_support.available()`.
"""

from typing import Any, cast

import torch
from torch import Tensor

from tandem.kernels.triton_plan import power_of_two
from tandem.kernels.triton_rows import gate_rows, rotate_heads

GATED_ACTIVATIONS = frozenset({"silu", "gelu_tanh"})
HEADS_AT_ONCE = 8
COLUMNS_AT_ONCE = 1024


def rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """As `models.rotary.rotate`.

    Args:
        heads: [T, N, head_dim]; tokens may be strided.
        cosines, sines: float32 [T, 1, head_dim].

    Returns: [T, N, head_dim], contiguous.
    """
    tokens, count, head_dim = heads.shape
    if heads.stride(2) != 1 or (count > 1 and heads.stride(1) != head_dim):
        heads = heads.contiguous()
    result = torch.empty(heads.shape, dtype=heads.dtype, device=heads.device)
    launch = cast("Any", rotate_heads)
    at_once = min(HEADS_AT_ONCE, power_of_two(count))
    launch[(tokens, -(-count // at_once))](
        heads,
        cosines.contiguous(),
        sines.contiguous(),
        result,
        heads.stride(0),
        HEADS=count,
        HEAD_DIM=head_dim,
        HEADS_AT_ONCE=at_once,
        PAD_HALF=power_of_two(head_dim // 2),
        num_warps=1,
    )
    return result


def gated(activation: str, gate: Tensor, up: Tensor) -> Tensor:
    """`activation(gate) * up` of `GATED_ACTIVATIONS`: [T, columns], new memory.

    Args:
        gate, up: [T, columns] of one type; tokens may be strided.
    """
    gate, up = _with_whole_rows(gate), _with_whole_rows(up)
    tokens, columns = gate.shape
    result = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    launch = cast("Any", gate_rows)
    launch[(tokens, -(-columns // COLUMNS_AT_ONCE))](
        gate,
        up,
        result,
        gate.stride(0),
        up.stride(0),
        columns,
        IS_SILU=activation == "silu",
        COLUMNS_AT_ONCE=COLUMNS_AT_ONCE,
    )
    return result


def _with_whole_rows(rows: Tensor) -> Tensor:
    return rows if rows.stride(1) == 1 else rows.contiguous()

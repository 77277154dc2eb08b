"""Two whole numbers of 4 bits to a byte, in the order that the kernels read."""

import torch
from torch import Tensor

_RUN = 32


def pack_nibbles(
    q: Tensor,  # uint8 [outputs, inputs], each at most 15; inputs a multiple of 32
) -> Tensor:
    """uint8 [outputs, inputs / 2]: byte i of each 16 holds elements i and 16 + i of 32."""
    low, high = q.view(q.shape[0], -1, 2, _RUN // 2).unbind(2)
    return (low | high << 4).reshape(q.shape[0], -1)


def unpack_nibbles(
    packed: Tensor,  # uint8 [outputs, inputs / 2]
) -> Tensor:
    """uint8 [outputs, inputs]: undoes `pack_nibbles`."""
    halves = packed.view(packed.shape[0], -1, _RUN // 2)
    return torch.stack((halves & 15, halves >> 4), 2).reshape(packed.shape[0], -1)

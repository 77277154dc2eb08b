"""Small whole numbers in 32-bit words."""

import torch
from torch import Tensor


def unpack_words(
    words: Tensor,  # int32 [rows, words]
    bits: int,  # 4 or 8
) -> Tensor:
    """uint8 [rows, words * 32 / bits]: of each word the lowest bits first."""
    low_first = words.contiguous().view(torch.uint8)  # words are little-endian in the file
    if bits == 8:
        return low_first
    return torch.stack((low_first & 15, low_first >> 4), -1).flatten(1)

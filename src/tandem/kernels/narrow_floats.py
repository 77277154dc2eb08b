"""Keys and values as floats of one byte (e4m3), and back (torch reference).

Pages hold them as uint8: torch copies and indexes bytes on every device, and kernels on GPUs before
SM89 know no such type. A code has a sign, four bits of exponent (bias 7) and three of fraction.
Numbers are rounded to the nearest, ties to even; beyond 448, the largest, they become that. There
are no infinities: they become NaN, so that an error stays visible.
"""

import torch
from torch import Tensor

LARGEST = 448.0
_NAN = 0x7F


def encode(values: Tensor) -> Tensor:
    """Codes of numbers of any shape and floating type: uint8 of the same shape."""
    wide = values.float()
    codes = wide.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).view(torch.uint8)
    # what torch makes of infinities, and of NaN's sign, is not the same everywhere
    nan = wide.signbit().to(torch.uint8) * 0x80 + _NAN
    return torch.where(wide.isfinite(), codes, nan)


def decode(codes: Tensor) -> Tensor:
    """Numbers of codes uint8 of any shape: float32 of the same shape, exact."""
    return codes.view(torch.float8_e4m3fn).float()

"""NumPy arrays as tensors."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """The array's own memory on the CPU; elsewhere a copy in stream order, without waiting."""
    return torch.from_numpy(np.ascontiguousarray(array)).to(device, non_blocking=True)

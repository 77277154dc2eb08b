"""NumPy arrays as tensors."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_STAGED_BYTES = 64 << 10
"""Up to which a copy from pageable memory does not wait for the stream (CUDA C++ Programming Guide,
"Concurrent Execution between Host and Device")."""


def upload(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """The array's own memory on the CPU; elsewhere a copy in stream order, without waiting."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type == "cpu":
        return tensor
    if tensor.nbytes > _STAGED_BYTES:
        tensor = tensor.pin_memory()  # torch keeps it until it has been read
    return tensor.to(device, non_blocking=True)

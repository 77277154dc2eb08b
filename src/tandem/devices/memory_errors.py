"""Which errors mean that memory ran out; torch is asked only where it is loaded already."""

import errno
import sys
from typing import Any, Literal

_TORCH_SAYS = ("can't allocate memory", "not enough memory")
_DEVICE_SAYS = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")  # driver and libraries, by torch


def exhausted_memory(error: BaseException) -> Literal["device", "host"] | None:
    """The memory that ran out; None if the error says something else."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return "device"
    if isinstance(error, MemoryError):
        return "host"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "host"
    if isinstance(error, RuntimeError):
        text = str(error)
        if any(words in text for words in _TORCH_SAYS):
            return "host"
        if any(words in text for words in _DEVICE_SAYS):
            return "device"
    return None

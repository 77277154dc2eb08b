"""Which errors mean that memory ran out; torch is asked only where it is loaded already."""

import errno
import sys
from typing import Any, Literal

_TORCH_SAYS = ("can't allocate memory", "not enough memory")


def exhausted_memory(error: BaseException) -> Literal["device", "host"] | None:
    """The memory that ran out; None if the error says something else."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.OutOfMemoryError):
        return "device"
    if isinstance(error, MemoryError):
        return "host"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "host"
    text = str(error)
    if isinstance(error, RuntimeError) and any(words in text for words in _TORCH_SAYS):
        return "host"
    return None

"""What probes by torch need of a device."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor


class ProbeDevice(Protocol):
    """Tensors on it, memory that it reaches, two queues, recordings, an end."""

    device: torch.device
    name: str
    memory_bytes: int

    def pinned(self, size_bytes: int) -> Tensor:
        """uint8 [size_bytes] in host memory that the device may access."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        ...

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within may run beside the rest."""
        ...

    def recorded(self, work: Callable[[], object]) -> Callable[[], object]:
        """What does the same, submitted at once where the device can."""
        ...

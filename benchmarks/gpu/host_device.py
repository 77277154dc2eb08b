"""A CPU in a device's place: what measures a GPU runs on it, its figures mean nothing."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch


class HostDevice:
    """See `torch_accelerator.ProbeDevice`."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.name, self.memory_bytes = "stand-in", 64 << 20

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """uint8 [size_bytes]: all of it can be reached."""
        return torch.empty(size_bytes, dtype=torch.uint8)

    def synchronize(self) -> None:
        """Nothing is under way."""

    def aside(self) -> AbstractContextManager[object]:
        """There is one queue."""
        return nullcontext()

    def recorded(self, work: Callable[[], object]) -> Callable[[], object]:
        """A call is all that it takes."""
        return work

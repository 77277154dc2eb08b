"""A CUDA device as probes see it."""

from contextlib import AbstractContextManager

import torch

from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.memory import pinned_bytes


class CudaProbe:
    """What probes need of a device: tensors on it, pinned memory, a second queue, an end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.name, self.memory_bytes = properties.name, properties.total_memory
        self._side = torch.cuda.Stream(device)

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """uint8 [size_bytes] in host memory, locked in place."""
        return pinned_bytes(size_bytes, device_node(self.device))

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        torch.cuda.synchronize(self.device)

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within goes to the second queue."""
        return torch.cuda.stream(self._side)

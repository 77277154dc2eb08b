"""A CUDA device as probes see it."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.memory import pinned_bytes


class CudaProbe:
    """What probes need of a device: tensors, pinned memory, two queues, recordings, an end."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        properties = torch.cuda.get_device_properties(device)
        self.name, self.memory_bytes = properties.name, properties.total_memory
        self._side, self._recorder = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        self._kept: torch.cuda.CUDAGraph | None = None

    def pinned(self, size_bytes: int) -> torch.Tensor:
        """uint8 [size_bytes] in host memory, locked in place."""
        return pinned_bytes(size_bytes, device_node(self.device))

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        torch.cuda.synchronize(self.device)

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within goes to the second queue."""
        return torch.cuda.stream(self._side)

    def recorded(self, work: Callable[[], object]) -> Callable[[], object]:
        """Launches `work` as a graph.

        Raises:
            RuntimeError: it cannot be captured.
        """
        if self._kept is None:
            # torch gives a pool up with the last graph of it, and captures nothing in one that it
            # has given up
            element = torch.zeros(1, device=self.device)
            self._kept = self._captured(lambda: element.add_(1))
        return self._captured(work).replay

    def _captured(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._recorder):
            work()  # compiles kernels, and libraries keep a workspace for each stream
            torch.cuda.synchronize(self.device)
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        return graph

"""Work recorded as CUDA graphs."""

from collections.abc import Callable
from contextlib import suppress

import torch

from tandem.devices.cuda.device import free_bytes, total_bytes
from tandem.devices.cuda.memory import alias


class CudaGraphs:
    """Records work as CUDA graphs, all in one pool of memory; see `runtime.graph_maker.GraphMaker`.

    A graph's memory is not given to tensors of others, but to the next graph's: so a result is an
    alias, which keeps none of it from that. Launches go to whichever stream is current.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool = torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        self._reserved_bytes = torch.cuda.memory_reserved(device)
        self._driver_bytes = 0  # taken beside torch while graphs were made

    def record(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """See `GraphMaker`.

        Raises:
            RuntimeError: torch or the driver cannot capture it.
        """
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self._stream):
            work()  # libraries keep a workspace for each stream: not in the pool
        torch.cuda.synchronize(self._device)
        before, graph = self._beside_torch(), torch.cuda.CUDAGraph()
        # other threads may allocate meanwhile, as those that report an engine's transfers
        try:
            # torch leaves a capture's stream the current one if the capture cannot be ended
            with (
                torch.cuda.stream(self._stream),
                torch.cuda.graph(
                    graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"
                ),
            ):
                result = work()
        except RuntimeError:
            self._give_up(graph)
            raise
        self._driver_bytes += max(0, self._beside_torch() - before)
        return graph.replay, alias(self._device, result)

    def _give_up(self, graph: torch.cuda.CUDAGraph) -> None:
        """Of a capture that failed, make the allocator forget: until 2.12 torch leaves it waiting
        for the end (pytorch/pytorch#180395), so that emptying its cache is an internal error, and
        memory that other streams have used never comes back. What was captured goes back to the
        pool, for the next capture, or with the last graph to the driver.
        """
        with suppress(RuntimeError):  # later ones have ended it already
            torch._C._cuda_endAllocateToPool(self._device.index, self._pool)
        with suppress(RuntimeError):
            graph.reset()

    def bring(self, host: torch.Tensor, target: torch.Tensor) -> None:
        """See `GraphMaker`; torch keeps the pinned copy until it has been read."""
        target.copy_(host.pin_memory(), non_blocking=True)

    def taken_bytes(self) -> int:
        """Of the device's memory, since this object was made: torch's, which is this process's
        alone, and what the driver took beside it for each graph.

        The latter is told for all processes together, so that what others took at that moment
        counts; what they took before and between does not. By process the driver tells it to NVML
        alone, by numbers that a container does not know (NVIDIA/nvidia-docker#1483). What is
        compiled for graphs is not in it, and small.
        """
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        taken = torch.cuda.memory_reserved(self._device) - self._reserved_bytes
        return max(0, taken + self._driver_bytes)

    def _beside_torch(self) -> int:
        """Of the device's memory, by all processes, but for this one's torch."""
        used = total_bytes(self._device) - free_bytes(self._device)
        return used - torch.cuda.memory_reserved(self._device)

"""A CUDA device's memory: what is given out, host memory that it knows, and bytes that it sees."""

import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from tandem.devices.memory_nodes import preferring
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size


def await_all(device: torch.device) -> None:
    """Until all that was submitted has ended."""
    torch.cuda.synchronize(device)


def start_peak(device: torch.device) -> int:
    """Forget the allocator's peak; returns the bytes allocated now."""
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.memory_allocated(device)


def end_peak(device: torch.device) -> int:
    """Most bytes allocated since `start_peak`; unused memory goes back to the driver."""
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.empty_cache()
    return peak


def give_back_memory() -> None:
    """What the allocator keeps but nobody uses goes back to the driver; without CUDA nothing."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


class CudaMemory:
    """The driver's and the allocator's word on one device, from here on.

    What is allocated now counts as fixed: weights, pages, slot table.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._fixed_bytes = start_peak(device)

    @property
    def description(self) -> str:
        """Name, compute capability and memory."""
        properties = torch.cuda.get_device_properties(self._device)
        gib = properties.total_memory / (1 << 30)
        return f"{properties.name} (sm_{properties.major}{properties.minor}, {gib:.1f} GiB)"

    def driver_peak_bytes(self) -> int:
        """What the driver has given out, contexts and other processes included, at the moment when
        this process's allocator held most.
        """
        free, total = torch.cuda.mem_get_info(self._device)
        reserved = torch.cuda.memory_reserved(self._device)
        returned = torch.cuda.max_memory_reserved(self._device) - reserved
        return total - free + max(0, returned)

    def grown_bytes(self) -> int:
        """Most bytes allocated at once beside the fixed ones."""
        return max(0, torch.cuda.max_memory_allocated(self._device) - self._fixed_bytes)


def pin(tensor: torch.Tensor) -> Callable[[], None]:
    """Lock a contiguous host tensor's pages and make them known to the device; the exact bytes.

    Torch's own pinned allocations are rounded up to a power of two: too much for a large pool.

    Returns: undoes it; to be called when no copy is under way, before the memory is freed. It is
        undone then in any case, as of an engine that does not come to be: the next one's memory
        may get the same addresses, which the driver would refuse.

    Raises:
        ConfigError: the driver refuses.
    """
    runtime: Any = torch.cuda.cudart()
    address, size = tensor.data_ptr(), tensor.nbytes
    error = runtime.cudaHostRegister(address, size, 0)
    if int(error) != 0:
        forget_error()
        raise ConfigError(
            f"the driver cannot pin {format_size(size)} of host memory ({error}); "
            "lower --cpu-memory, or raise the limit on locked memory (ulimit -l)",
            param="cpu_memory",
        )

    # after a device error, which was reported where it struck, every call fails: nothing to add
    release = weakref.finalize(tensor.untyped_storage(), runtime.cudaHostUnregister, address)
    release.atexit = False
    return release


def forget_error() -> None:
    """Of a call to the runtime that failed: it is kept for whoever asks next, and torch asks behind
    every kernel that it launches, so another's operation would be blamed; asking forgets it.
    """
    with suppress(RuntimeError):
        torch.ones(1, device="cuda")


def pinned_bytes(size_bytes: int, node: int | None) -> torch.Tensor:
    """New pinned memory: uint8 [size], on that node if torch allocates it anew. It rounds it up to
    a power of two, keeps it when it is freed, and gives it out again when no copy from it is under
    way.
    """
    with preferring(node):
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)


def as_seen_by(device: torch.device, pinned: torch.Tensor) -> torch.Tensor:
    """Contiguous host memory that has been pinned, as a tensor of the device: the same bytes, which
    kernels read over the link, row by row if they gather rows.

    With unified addressing, which all devices that torch supports have, registered memory has the
    same address on both sides (CUDA C++ Programming Guide, "Mapped Memory"). The host's tensor must
    outlive what is returned, and stay pinned.
    """
    return alias(device, pinned)


def alias(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a contiguous tensor, as a tensor of the device that does not own them."""
    view = _DeviceBytes((tensor.nbytes,), tensor.data_ptr())
    return torch.as_tensor(view, device=device).view(tensor.dtype).view(tensor.shape)


class _DeviceBytes:
    """Memory that a device can read, in the form that torch takes without copying."""

    def __init__(self, shape: tuple[int, ...], address: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "|u1", "data": (address, False), "version": 3,
        }  # fmt: skip

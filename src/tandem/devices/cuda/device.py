"""A CUDA device: whether there is one, what it is and can do."""

import torch

from tandem.devices.memory_nodes import memory_nodes
from tandem.spec.errors import ConfigError


def cuda_available() -> bool:
    """True if torch sees a CUDA device."""
    return torch.cuda.is_available()


def open_cuda(index: int) -> torch.device:
    """The CUDA device of that number.

    Raises:
        ConfigError: there is none.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        raise ConfigError(
            f"there is no CUDA device {index} ({count} found); use --accelerator none, or emulated",
            param="accelerator",
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def free_bytes(device: torch.device) -> int:
    """Memory that the driver would still give out."""
    return torch.cuda.mem_get_info(device)[0]


def total_bytes(device: torch.device) -> int:
    """The device's memory."""
    return torch.cuda.mem_get_info(device)[1]


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of the device."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def compute_capability(device: torch.device) -> tuple[int, int]:
    """Major and minor number of what the device can do."""
    return torch.cuda.get_device_capability(device)


def has_bfloat16(device: torch.device) -> bool:
    """Whether a CUDA device has units for bfloat16; of others, True."""
    return device.type != "cuda" or compute_capability(device) >= (8, 0)


def device_name(device: torch.device) -> str:
    """What the driver calls the device."""
    return torch.cuda.get_device_name(device)


def device_node(device: torch.device) -> int | None:
    """The NUMA node that a device hangs on; None if that is not known, or the host has but one."""
    from tandem.devices.accelerator_node import cuda_node

    return cuda_node(device.index or 0) if len(memory_nodes()) > 1 else None


def stream_handle(device: torch.device) -> int:
    """The driver's name of the current stream; 0: the legacy default stream."""
    return torch.cuda.current_stream(device).cuda_stream

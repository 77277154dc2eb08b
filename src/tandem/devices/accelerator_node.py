"""Which NUMA node an accelerator hangs on: what the link copies through lies there (ADR 0021)."""

import ctypes
from pathlib import Path
from typing import Any

_LIBRARY = "libcuda.so.1"
_DEVICES = Path("/sys/bus/pci/devices")
_ADDRESS_BYTES = 32  # of "0000:3b:00.0" and its end


def cuda_node(index: int, library: Any = _LIBRARY, devices: Path = _DEVICES) -> int | None:
    """The node of the CUDA device of that number, as the process counts them.

    Args:
        library: the driver's; by default as it is installed. devices: of the system's PCI bus.

    Returns: None where the driver or the system does not say.
    """
    address = _pci_address(index, library)
    return None if address is None else _node_of(devices / address.lower() / "numa_node")


def _pci_address(index: int, library: Any) -> str | None:
    device, text = ctypes.c_int(), ctypes.create_string_buffer(_ADDRESS_BYTES)
    try:
        driver = ctypes.CDLL(library) if isinstance(library, str) else library
        failed = driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetPCIBusId(
            text, _ADDRESS_BYTES, device
        )
    except (OSError, AttributeError):
        return None
    return None if failed else text.value.decode("ascii")


def _node_of(file: Path) -> int | None:
    """What the file says; -1 stands for none."""
    try:
        node = int(file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None

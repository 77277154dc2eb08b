"""Host memory that is read in bulk, in pages as large as the system gives.

A core that reads gigabytes through pages of 4 KiB waits for their addresses: huge pages let it read
up to half as fast again, and in a virtual machine, where each look-up is two, more than that
(ADR 0019). The system only gives them where they are asked for, so weights and KV pages are mapped
here and not taken from torch.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from tandem.devices.memory_nodes import interleave, memory_nodes

HUGE_PAGE_BYTES = 2 << 20
_ASK = getattr(mmap, "MADV_HUGEPAGE", None)  # Linux
_MODE_FILE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def bulk_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros in host memory, which the system provides on first touch: what is not used costs no
    memory and no time. They begin with a page, of 2 MiB if there is a whole one.

    The end, less than a huge page, is of small ones: no more is taken than was asked for.
    """
    size_bytes = prod(shape) * dtype.itemsize
    if size_bytes == 0:
        return torch.zeros(shape, dtype=dtype)
    huge_bytes = size_bytes // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
    room = HUGE_PAGE_BYTES if huge_bytes else 0
    lazy = mmap.mmap(-1, size_bytes + room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = 0
    if huge_bytes:
        address = torch.frombuffer(lazy, dtype=torch.uint8).data_ptr()
        start = -address % HUGE_PAGE_BYTES
        _ask(lazy, start, huge_bytes)
        _spread(address + start, huge_bytes)
    # The tensor keeps the mapping.
    memory = torch.frombuffer(lazy, dtype=torch.uint8, count=size_bytes, offset=start)
    return memory.view(dtype).view(*shape)


def bulk_memory(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory on a device, not yet filled; in the host's for reading in bulk, if it is a huge page
    or more.
    """
    if device.type == "cpu" and prod(shape) * dtype.itemsize >= HUGE_PAGE_BYTES:
        return bulk_zeros(shape, dtype)
    return torch.empty(shape, dtype=dtype, device=device)


def huge_pages(mode_file: Path = _MODE_FILE) -> str:
    """The system's word on huge pages that a process asks for, for reports."""
    try:
        modes = mode_file.read_text(encoding="ascii").split()
    except OSError:
        return "none: this system has no transparent huge pages"
    chosen = next((mode.strip("[]") for mode in modes if mode.startswith("[")), "unknown")
    return "never: bulk memory is read more slowly" if chosen == "never" else chosen


def _ask(memory: mmap.mmap, start: int, size_bytes: int) -> None:
    if _ASK is None:
        return
    try:
        memory.madvise(_ASK, start, size_bytes)
    except OSError:  # a system without them: small pages hold the same
        return


def _spread(address: int, size_bytes: int) -> None:
    """On several nodes: else all would lie on the one whose thread fills it."""
    nodes = memory_nodes()
    if len(nodes) > 1:
        with suppress(OSError):  # where it is forbidden, in some containers: slower, as valid
            interleave(address, size_bytes, nodes)

"""Counters in host memory that a CUDA stream raises when it comes to them, without any thread.

An event becomes a counter of the host's only when a Python thread has woken up for it. A stream
that writes the counter itself (`cuStreamWriteValue32`) is seen by native threads within what their
look at memory takes. Streams that *wait* for counters of the host are not used: whatever
synchronises with the device meanwhile, as an allocation does, would wait for the host's work, which
may be what it is for.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tandem.plan.program import Queue

_LIBRARY = "libcuda.so.1"
_WRITE = "cuStreamWriteValue32_v2"  # of CUDA 11.7 and later; the first form must be enabled first
_ARGUMENTS = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
_DEFAULT = 0  # CU_STREAM_WRITE_VALUE_DEFAULT: behind a fence, with all that was written before
_APART_BYTES = 64  # a cache line each
_PROBED = 0x5EEDED


class NoStreamCountersError(Exception):
    """They cannot be here; says why."""


class StreamCounters:
    """A counter for each of some queues, in memory that the device may write to.

    Args:
        memory: uint8 [`size_bytes` of so many queues], pinned, zero. With unified addressing, which
            all devices that torch supports have, it has the same address on both sides.
        stream: the driver's handle of an idle stream, on which it is tried. synchronize: waits for
            it.
        library: the driver's; by default as it is installed.

    Attributes:
        addresses: of each queue's counter.

    Raises:
        NoStreamCountersError: there is no such function, or a value that is written does not come.
    """

    def __init__(
        self,
        memory: torch.Tensor,
        queues: Sequence[Queue],
        stream: int,
        synchronize: Callable[[], None],
        library: Any = _LIBRARY,
    ) -> None:
        self._memory = memory
        self._write = _find(library)
        first = memory.data_ptr()
        self.addresses: Mapping[Queue, int] = {
            queue: first + number * _APART_BYTES for number, queue in enumerate(queues, 1)
        }
        self._try(first, stream, synchronize)

    @staticmethod
    def size_bytes(queues: int) -> int:
        """Memory for so many queues' counters, and for the trial."""
        return (queues + 1) * _APART_BYTES

    def write(self, stream: int, queue: Queue, value: int) -> None:
        """Raise a queue's counter to `value` when the stream has come here.

        Raises:
            RuntimeError: the driver refuses.
        """
        self._call(stream, self.addresses[queue], value)

    def _call(self, stream: int, address: int, value: int) -> None:
        error = self._write(stream, address, value & 0xFFFFFFFF, _DEFAULT)
        if error:
            raise RuntimeError(f"{_WRITE} failed with CUDA error {error}")

    def _try(self, address: int, stream: int, synchronize: Callable[[], None]) -> None:
        try:
            self._call(stream, address, _PROBED)
            synchronize()
        except RuntimeError as error:
            raise NoStreamCountersError(str(error)) from error
        if ctypes.c_uint32.from_address(address).value != _PROBED:
            raise NoStreamCountersError(f"what {_WRITE} wrote did not come to host memory")


def _find(library: Any) -> Any:
    try:
        opened = ctypes.CDLL(library) if isinstance(library, str) else library
        write = getattr(opened, _WRITE)
    except (OSError, AttributeError) as error:
        raise NoStreamCountersError(f"the driver has no {_WRITE}: {error}") from error
    write.argtypes, write.restype = _ARGUMENTS, ctypes.c_int
    return write

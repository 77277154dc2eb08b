"""Counters in host memory that a CUDA stream raises when it comes to them, without any thread.

An event becomes a counter of the host's only when a Python thread has woken up for it. A stream
that writes the counter itself (`cuStreamWriteValue32`) is seen by native threads within what their
look at memory takes.

A stream can also *wait* for such a counter (`cuStreamWaitValue32`), by the user's wish
(`--link-waits stream`): `runtime/stream_waits.py` says when that is safe.
"""

import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from tandem.plan.program import Queue

_LIBRARY = "libcuda.so.1"
_WRITE = "cuStreamWriteValue32_v2"  # of CUDA 11.7 and later; the first form must be enabled first
_WAIT = "cuStreamWaitValue32_v2"
_ARGUMENTS = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint)
_DEFAULT = 0  # CU_STREAM_WRITE_VALUE_DEFAULT: behind a fence, with all that was written before
_AT_LEAST = 0  # CU_STREAM_WAIT_VALUE_GEQ: on the circle of 32 bits, as `signal.reached`
_APART_BYTES = 64  # a cache line each
_PROBED = 0x5EEDED
_TRIAL_S = 5.0  # in which a stream that waits must see what the host has written


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
        self._write = _find(library, _WRITE)
        self._library = library
        self._wait: Any = None
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

    def wait(self, stream: int, queue: Queue, value: int) -> None:
        """Have a stream stand still until a queue's counter, which the host raises, is at `value`
        or beyond; after `enable_waits` only.

        Raises:
            RuntimeError: the driver refuses.
        """
        self._stand(stream, self.addresses[queue], value)

    def enable_waits(self, stream: int, is_idle: Callable[[], bool], other: int) -> None:
        """Try streams' waits on an idle stream, for a few seconds at most.

        Args:
            is_idle: whether it has come to the end of what it was given.
            other: another stream, which lets this one go on if the host's write does not.

        Raises:
            NoStreamCountersError: the driver has no such function, a stream does not wait, or does
                not see what the host writes.
        """
        self._wait = _find(self._library, _WAIT)
        address = self._memory.data_ptr()
        trial = ctypes.c_uint32.from_address(address)
        reached, awaited = trial.value, trial.value + 1
        try:
            self._stand(stream, address, reached)
            if not _within(is_idle, _TRIAL_S):
                raise NoStreamCountersError(f"a stream with {_WAIT} waits for what has been")
            self._stand(stream, address, awaited)
            has_waited = not is_idle()
            trial.value = awaited
            if not _within(is_idle, _TRIAL_S):
                self._call(other, address, awaited)
                raise NoStreamCountersError("a stream that waits does not see what the host writes")
        except RuntimeError as error:
            raise NoStreamCountersError(str(error)) from error
        if not has_waited:
            raise NoStreamCountersError(f"a stream with {_WAIT} does not wait")

    def _call(self, stream: int, address: int, value: int) -> None:
        error = self._write(stream, address, value & 0xFFFFFFFF, _DEFAULT)
        if error:
            raise RuntimeError(f"{_WRITE} failed with CUDA error {error}")

    def _stand(self, stream: int, address: int, value: int) -> None:
        error = self._wait(stream, address, value & 0xFFFFFFFF, _AT_LEAST)
        if error:
            raise RuntimeError(f"{_WAIT} failed with CUDA error {error}")

    def _try(self, address: int, stream: int, synchronize: Callable[[], None]) -> None:
        try:
            self._call(stream, address, _PROBED)
            synchronize()
        except RuntimeError as error:
            raise NoStreamCountersError(str(error)) from error
        if ctypes.c_uint32.from_address(address).value != _PROBED:
            raise NoStreamCountersError(f"what {_WRITE} wrote did not come to host memory")


def _find(library: Any, name: str) -> Any:
    try:
        opened = ctypes.CDLL(library) if isinstance(library, str) else library
        found = getattr(opened, name)
    except (OSError, AttributeError) as error:
        raise NoStreamCountersError(f"the driver has no {name}: {error}") from error
    found.argtypes, found.restype = _ARGUMENTS, ctypes.c_int
    return found


def _within(holds: Callable[[], bool], limit_s: float) -> bool:
    end_s = time.perf_counter() + limit_s
    while not (held := holds()) and time.perf_counter() < end_s:
        os.sched_yield()
    return held

"""Many copies in one call of the driver (`cuMemcpyBatchAsync`, CUDA 12.8 and later).

Copies of a batch may come in any order, and the batch as a whole in the stream's: what reads a
target, or writes to a source, is ordered after it, or before, as with any copy. The driver knows no
batches on the legacy default stream.
"""

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

_LIBRARY = "libcuda.so.1"
# of CUDA 13; 12.8 and 12.9 have the first form alone, which takes one more pointer
_NEW, _OLD = "cuMemcpyBatchAsync_v2", "cuMemcpyBatchAsync"
_STREAM_ORDER = 1  # CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: sources are read when the stream is there


class NoBatchCopiesError(Exception):
    """They cannot be here; says why."""


class _Location(ctypes.Structure):
    """CUmemLocation: a hint that the driver ignores for memory that it knows."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Attributes(ctypes.Structure):
    """CUmemcpyAttributes."""

    _fields_ = (
        ("source_order", ctypes.c_int),
        ("source_hint", _Location),
        ("target_hint", _Location),
        ("flags", ctypes.c_uint),
    )


_SIZES = ctypes.POINTER(ctypes.c_size_t)
_POINTERS = ctypes.POINTER(ctypes.c_uint64)
_BEFORE = (_POINTERS, _POINTERS, _SIZES, ctypes.c_size_t)
_ATTRIBUTES = (ctypes.POINTER(_Attributes), _SIZES, ctypes.c_size_t)
_NEW_ARGUMENTS = (*_BEFORE, *_ATTRIBUTES, ctypes.c_void_p)
_OLD_ARGUMENTS = (*_BEFORE, *_ATTRIBUTES, _SIZES, ctypes.c_void_p)


class BatchCopies:
    """The driver's function for batches.

    Args:
        library: the driver's; by default as it is installed.

    Raises:
        NoBatchCopiesError: there is no such driver, or it is older.
    """

    def __init__(self, library: Any = _LIBRARY) -> None:
        self._call, self._reports_failed = _find(library)
        self._attributes = _Attributes(source_order=_STREAM_ORDER)
        self._first = ctypes.c_size_t(0)

    def copy(self, targets: Numbers, sources: Numbers, sizes: Numbers, stream: int) -> None:
        """Copy so many bytes from each source to its target; nothing is waited for.

        Args:
            targets, sources: addresses, uint64 [n], of memory that the driver knows.
            sizes: bytes of each copy, uint64 [n], none of them 0.
            stream: the driver's handle, not 0.

        Raises:
            RuntimeError: the driver refuses.
        """
        count = len(targets)
        if not count:
            return
        targets, sources, sizes = map(np.ascontiguousarray, (targets, sources, sizes))
        failed = (ctypes.byref(ctypes.c_size_t(0)),) if self._reports_failed else ()
        error = self._call(
            targets.ctypes.data_as(_POINTERS),
            sources.ctypes.data_as(_POINTERS),
            sizes.ctypes.data_as(_SIZES),
            count,
            ctypes.byref(self._attributes),
            ctypes.byref(self._first),
            1,
            *failed,
            stream,
        )
        if error:
            raise RuntimeError(f"{_OLD} of {count} copies failed with CUDA error {error}")


def _find(library: Any) -> tuple[Any, bool]:
    """The newest form of the function, and whether it says which copy failed."""
    try:
        opened = ctypes.CDLL(library) if isinstance(library, str) else library
    except OSError as error:
        raise NoBatchCopiesError(f"there is no driver: {error}") from error
    for name, arguments in ((_NEW, _NEW_ARGUMENTS), (_OLD, _OLD_ARGUMENTS)):
        call = getattr(opened, name, None)
        if call is not None:
            call.argtypes, call.restype = arguments, ctypes.c_int
            return call, name == _OLD
    raise NoBatchCopiesError(f"the driver has no {_OLD}, which CUDA 12.8 brings")

"""Gives memory of mapped files back once it has been read."""

import ctypes
import mmap

from torch import Tensor

_LIBC = ctypes.CDLL(None)


def forget_pages(tensor: Tensor) -> None:
    """Let the system drop the whole pages of a tensor that lies in a mapped file.

    Else they count as this process's until the file is closed, beside the copy that was made of
    them. The tensor must not be read again. If the system refuses, they stay: nothing is lost.
    """
    page = mmap.PAGESIZE
    first = -(-tensor.data_ptr() // page) * page
    last = (tensor.data_ptr() + tensor.nbytes) // page * page
    if last > first:
        address, size = ctypes.c_void_p(first), ctypes.c_size_t(last - first)
        _LIBC.madvise(address, size, mmap.MADV_DONTNEED)

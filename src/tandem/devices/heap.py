"""The C library's heap, from which Python and torch take most of what they need."""

import ctypes


def give_back_freed() -> None:
    """Give the system the pages of memory that was freed.

    glibc keeps them wherever something above is still in use: after weights have been converted,
    tens of megabytes, or not, by chance. Other C libraries have no such call and keep less.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

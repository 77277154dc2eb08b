"""NUMA nodes: memory that all threads read is spread over them (ADR 0021)."""

import ctypes
import errno
import os
import platform
from pathlib import Path

_STATUS = Path("/proc/self/status")
_ALLOWED = "Mems_allowed_list:"
_MBIND = {"x86_64": 237, "aarch64": 235}  # the C library has no function for it
_INTERLEAVE = 3  # MPOL_INTERLEAVE
_WORD_BITS = 8 * ctypes.sizeof(ctypes.c_ulong)


def memory_nodes(status_file: Path = _STATUS) -> tuple[int, ...]:
    """Nodes whose memory this process may use; one where the system does not say."""
    try:
        lines = status_file.read_text(encoding="ascii").splitlines()
    except OSError:
        return (0,)
    listed = next((line.removeprefix(_ALLOWED) for line in lines if line.startswith(_ALLOWED)), "")
    return _numbers(listed.strip()) or (0,)


def interleave(address: int, size_bytes: int, nodes: tuple[int, ...]) -> None:
    """Let memory that has not been touched come from `nodes` in turns, a page from each.

    Args:
        address: of its first page.

    Raises:
        OSError: the system refuses, or is not known.
    """
    number = _MBIND.get(platform.machine())
    if number is None or not hasattr(ctypes.CDLL(None), "syscall"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    words = max(nodes) // _WORD_BITS + 1
    mask = (ctypes.c_ulong * words)()
    for node in nodes:
        mask[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    library = ctypes.CDLL(None, use_errno=True)
    arguments = (address, size_bytes, _INTERLEAVE, ctypes.addressof(mask))
    bits = words * _WORD_BITS + 1  # the kernel counts one more than it reads
    failed = library.syscall(
        ctypes.c_long(number), *map(ctypes.c_ulong, arguments), ctypes.c_ulong(bits), 0
    )
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def describe_nodes(nodes: tuple[int, ...]) -> str:
    """For reports."""
    return "1" if len(nodes) == 1 else f"{len(nodes)}, bulk memory spread over all"


def _numbers(listed: str) -> tuple[int, ...]:
    """Of a list like `0-1,4`."""
    found: list[int] = []
    for part in filter(None, listed.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)

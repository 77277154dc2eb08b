"""NUMA nodes: memory that all threads read is spread over them, what the link copies through lies
on the accelerator's (ADR 0021).
"""

import ctypes
import errno
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_STATUS = Path("/proc/self/status")
_ALLOWED = "Mems_allowed_list:"
# The C library has no functions for them.
_MBIND = {"x86_64": 237, "aarch64": 235}
_GET_POLICY = {"x86_64": 239, "aarch64": 236}
_SET_POLICY = {"x86_64": 238, "aarch64": 237}
_DEFAULT, _PREFERRED, _INTERLEAVE = 0, 1, 3  # MPOL_...
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
    mask = _mask(nodes)
    _call(_MBIND, address, size_bytes, _INTERLEAVE, ctypes.addressof(mask), _bits(mask), 0)


@contextmanager
def preferring(node: int | None) -> Iterator[None]:
    """Within, memory that this thread is given comes from `node` while there is room.

    Nothing is asked for where that is None, no node of this process, or its only one; where the
    process was told what to prefer (by `numactl`, say); and where the system refuses: such memory
    is further away, and as valid.
    """
    nodes = () if node is None else memory_nodes()
    chosen = False
    if node is not None and node in nodes and len(nodes) > 1:
        with suppress(OSError):
            if _policy() == _DEFAULT:
                mask = _mask([node])
                _call(_SET_POLICY, _PREFERRED, ctypes.addressof(mask), _bits(mask))
                chosen = True
    try:
        yield
    finally:
        if chosen:
            _call(_SET_POLICY, _DEFAULT, 0, 0)


def _policy() -> int:
    """What the kernel does when this thread asks for memory."""
    mode = ctypes.c_int(-1)
    _call(_GET_POLICY, ctypes.addressof(mode), 0, 0, 0, 0)
    return mode.value


def _mask(nodes: Sequence[int]) -> ctypes.Array[ctypes.c_ulong]:
    mask = (ctypes.c_ulong * (max(nodes) // _WORD_BITS + 1))()
    for node in nodes:
        mask[node // _WORD_BITS] |= 1 << node % _WORD_BITS
    return mask


def _bits(mask: ctypes.Array[ctypes.c_ulong]) -> int:
    return len(mask) * _WORD_BITS + 1  # the kernel counts one more than it reads


def _call(numbers: dict[str, int], *arguments: int) -> None:
    """A call of the system by its number on this architecture."""
    number = numbers.get(platform.machine())
    if number is None or not hasattr(ctypes.CDLL(None), "syscall"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(ctypes.c_long(number), *map(ctypes.c_ulong, arguments)):
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

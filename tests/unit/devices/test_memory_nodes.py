"""Memory spread over nodes; a machine of one node can still be asked where it put its pages."""

import ctypes
import mmap
import platform
from pathlib import Path

import pytest

from tandem.devices import host_memory
from tandem.devices.host_memory import HUGE_PAGE_BYTES, bulk_zeros
from tandem.devices.memory_nodes import describe_nodes, interleave, memory_nodes

GET_POLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
INTERLEAVED, OF_ADDRESS = 3, 2
linux = pytest.mark.skipif(
    GET_POLICY is None or not Path("/sys/devices/system/node").exists(),
    reason="no memory policies here",
)


def policy_of(address: int) -> int:
    """The kernel's word on a page's policy."""
    library, mode = ctypes.CDLL(None, use_errno=True), ctypes.c_int(-1)
    failed = library.syscall(
        ctypes.c_long(GET_POLICY or 0),
        ctypes.byref(mode),
        None,
        ctypes.c_ulong(0),
        ctypes.c_ulong(address),
        ctypes.c_ulong(OF_ADDRESS),
    )
    assert not failed, ctypes.get_errno()
    return mode.value


@linux
def test_the_kernel_agrees_that_memory_is_spread() -> None:
    memory = mmap.mmap(-1, 4 * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert policy_of(address) != INTERLEAVED
    interleave(address, 2 * mmap.PAGESIZE, memory_nodes())
    assert policy_of(address) == policy_of(address + mmap.PAGESIZE) == INTERLEAVED
    assert policy_of(address + 2 * mmap.PAGESIZE) != INTERLEAVED


@linux
def test_what_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        interleave(mmap.PAGESIZE + 1, mmap.PAGESIZE, memory_nodes())  # no page begins there


def test_bulk_memory_is_spread_where_there_are_several_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int, tuple[int, ...]]] = []
    monkeypatch.setattr(host_memory, "memory_nodes", lambda: (0, 2))
    monkeypatch.setattr(host_memory, "interleave", lambda *asking: asked.append(asking))
    zeros = bulk_zeros((3 * HUGE_PAGE_BYTES + 5,), host_memory.torch.uint8)
    assert asked == [(zeros.data_ptr(), 3 * HUGE_PAGE_BYTES, (0, 2))]
    monkeypatch.setattr(host_memory, "memory_nodes", lambda: (2,))
    bulk_zeros((HUGE_PAGE_BYTES,), host_memory.torch.uint8)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("listed", "nodes"), [("0", (0,)), ("0-1", (0, 1)), ("1,3-5", (1, 3, 4, 5)), ("", (0,))]
)
def test_nodes_are_read_as_the_kernel_lists_them(
    tmp_path: Path, listed: str, nodes: tuple[int, ...]
) -> None:
    file = tmp_path / "status"
    file.write_text(f"Mems_allowed:\t1\nMems_allowed_list:\t{listed}\nThreads:\t1\n")
    assert memory_nodes(file) == nodes


def test_a_system_that_does_not_say_has_one(tmp_path: Path) -> None:
    assert memory_nodes(tmp_path / "status") == (0,)
    assert describe_nodes((0,)) == "1"
    assert describe_nodes((0, 1)) == "2, bulk memory spread over all"

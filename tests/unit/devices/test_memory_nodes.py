"""Memory spread over nodes; a machine of one node can still be asked where it put its pages."""

import ctypes
import errno
import mmap
import platform
from pathlib import Path

import pytest

from tandem.devices import host_memory
from tandem.devices import memory_nodes as nodes_module
from tandem.devices.host_memory import HUGE_PAGE_BYTES, bulk_zeros
from tandem.devices.memory_nodes import describe_nodes, interleave, memory_nodes, preferring

GET_POLICY = {"x86_64": 239, "aarch64": 236}.get(platform.machine())
SET_POLICY = {"x86_64": 238, "aarch64": 237}.get(platform.machine())
DEFAULT, PREFERRED, INTERLEAVED, OF_ADDRESS = 0, 1, 3, 2
linux = pytest.mark.skipif(
    GET_POLICY is None or not Path("/sys/devices/system/node").exists(),
    reason="no memory policies here",
)


def policy_of(address: int | None) -> int:
    """The kernel's word on a page's policy; on this thread's if there is no page."""
    library, mode = ctypes.CDLL(None, use_errno=True), ctypes.c_int(-1)
    failed = library.syscall(
        ctypes.c_long(GET_POLICY or 0),
        ctypes.byref(mode),
        None,
        ctypes.c_ulong(0),
        ctypes.c_ulong(address or 0),
        ctypes.c_ulong(0 if address is None else OF_ADDRESS),
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


def several_nodes(monkeypatch: pytest.MonkeyPatch) -> int:
    """The first of this machine's nodes, which then seems to have another."""
    first = memory_nodes()[0]
    monkeypatch.setattr(nodes_module, "memory_nodes", lambda: (first, first + 1))
    return first


@linux
def test_a_node_is_preferred_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    node = several_nodes(monkeypatch)
    with preferring(node):
        assert policy_of(None) == PREFERRED
    assert policy_of(None) == DEFAULT
    with pytest.raises(KeyError), preferring(node):
        raise KeyError
    assert policy_of(None) == DEFAULT


@linux
@pytest.mark.parametrize("node", [None, 4000])
def test_a_node_that_is_not_the_process_s_is_not(
    node: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    several_nodes(monkeypatch)
    with preferring(node):
        assert policy_of(None) == DEFAULT


@linux
def test_a_node_that_is_there_for_others_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    first = memory_nodes()[0]
    monkeypatch.setattr(nodes_module, "memory_nodes", lambda: (first + 1, first + 2))
    with preferring(first):
        assert policy_of(None) == DEFAULT


@linux
def test_the_only_node_needs_no_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    only = memory_nodes()[0]
    monkeypatch.setattr(nodes_module, "memory_nodes", lambda: (only,))
    with preferring(only):
        assert policy_of(None) == DEFAULT


@linux
def test_a_system_that_sets_no_policy_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    node, called = several_nodes(monkeypatch), nodes_module._call

    def refuses(numbers: dict[str, int], *arguments: int) -> None:
        if numbers is nodes_module._SET_POLICY:
            raise PermissionError(errno.EPERM, "Operation not permitted")
        called(numbers, *arguments)

    monkeypatch.setattr(nodes_module, "_call", refuses)
    with preferring(node):
        assert policy_of(None) == DEFAULT


@linux
def test_what_the_process_was_told_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    node = several_nodes(monkeypatch)
    library, mask = ctypes.CDLL(None, use_errno=True), ctypes.c_ulong(1 << node)
    number = ctypes.c_long(SET_POLICY or 0)
    assert not library.syscall(number, INTERLEAVED, ctypes.byref(mask), ctypes.c_ulong(65))
    try:
        with preferring(node):
            assert policy_of(None) == INTERLEAVED
        assert policy_of(None) == INTERLEAVED
    finally:
        assert not library.syscall(number, DEFAULT, None, ctypes.c_ulong(0))

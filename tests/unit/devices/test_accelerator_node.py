"""Where an accelerator hangs, of a driver and a PCI bus that are made up."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tandem.devices import accelerator_node
from tandem.devices.accelerator_node import cuda_node
from tandem.devices.cuda import device as cuda_device
from tandem.devices.cuda import memory as cuda_memory


class Driver:
    """Devices at addresses, in upper case as the driver writes them; their handles are 10 apart."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses

    def cuDeviceGet(self, device: Any, index: int) -> int:
        if index >= len(self.addresses):
            return 101
        device._obj.value = 10 * index
        return 0

    def cuDeviceGetPCIBusId(self, text: Any, size: int, device: ctypes.c_int) -> int:
        assert size == len(text)
        text.value = self.addresses[device.value // 10].encode()
        return 0


def bus(folder: Path, **nodes: str) -> Path:
    for name, node in nodes.items():
        device = folder / f"0000:{name}:00.0"
        device.mkdir()
        (device / "numa_node").write_text(node)
    return folder


def test_each_device_has_its_node(tmp_path: Path) -> None:
    driver = Driver(["0000:3B:00.0", "0000:D8:00.0"])
    devices = bus(tmp_path, **{"3b": "0\n", "d8": "1\n"})
    assert cuda_node(0, driver, devices) == 0
    assert cuda_node(1, driver, devices) == 1


@pytest.mark.parametrize("word", ["-1\n", "", "none\n"])
def test_a_system_that_does_not_say(tmp_path: Path, word: str) -> None:
    assert cuda_node(0, Driver(["0000:3B:00.0"]), bus(tmp_path, **{"3b": word})) is None


def test_a_device_that_is_not_listed(tmp_path: Path) -> None:
    devices = bus(tmp_path, d8="1\n")
    assert cuda_node(0, Driver(["0000:3B:00.0"]), devices) is None
    assert cuda_node(1, Driver(["0000:D8:00.0"]), devices) is None


def test_no_driver(tmp_path: Path) -> None:
    assert cuda_node(0, "libnothing-of-the-kind.so.1", tmp_path) is None
    assert cuda_node(0, object(), tmp_path) is None


def test_pinned_memory_is_asked_for_on_the_device_s_node(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []

    class Preferring:
        def __init__(self, node: int | None) -> None:
            self.node = node

        def __enter__(self) -> None:
            asked.append(self.node)

        def __exit__(self, *_: object) -> None:
            asked.append(None)

    def empty(size: int, *, dtype: torch.dtype, pin_memory: bool) -> torch.Tensor:
        assert asked == [11]
        assert pin_memory
        return torch.zeros(size, dtype=dtype)

    monkeypatch.setattr(accelerator_node, "cuda_node", lambda index: 10 + index)
    monkeypatch.setattr(cuda_device, "memory_nodes", lambda: (0, 1))
    monkeypatch.setattr(cuda_memory, "preferring", Preferring)
    monkeypatch.setattr(torch, "empty", empty)
    node = cuda_device.device_node(torch.device("cuda", 1))
    assert cuda_memory.pinned_bytes(64, node).shape == (64,)
    assert asked == [11, None]


def test_a_host_of_one_node_has_no_other_to_prefer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator_node, "cuda_node", lambda index: 0)
    monkeypatch.setattr(cuda_device, "memory_nodes", lambda: (0,))
    assert cuda_device.device_node(torch.device("cuda")) is None

"""What the driver and the allocator are asked, and what is made of it."""

import ctypes
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from tandem.devices.cuda.memory import CudaMemory, as_seen_by

DEVICE = torch.device("cuda", 0)


@dataclass
class FakeAllocator:
    """One device of 1,000 bytes; others use 100 of it."""

    allocated: int = 300
    reserved: int = 400
    most_allocated: int = 0
    most_reserved: int = 0

    def reset(self) -> None:
        self.most_allocated, self.most_reserved = self.allocated, self.reserved

    def use(self, allocated: int, reserved: int) -> None:
        self.allocated, self.reserved = allocated, reserved
        self.most_allocated = max(self.most_allocated, allocated)
        self.most_reserved = max(self.most_reserved, reserved)


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> FakeAllocator:
    fake = FakeAllocator()
    asked = {
        "synchronize": lambda: None,
        "reset_peak_memory_stats": fake.reset,
        "memory_allocated": lambda: fake.allocated,
        "memory_reserved": lambda: fake.reserved,
        "max_memory_allocated": lambda: fake.most_allocated,
        "max_memory_reserved": lambda: fake.most_reserved,
        "mem_get_info": lambda: (1000 - 100 - fake.reserved, 1000),
    }
    for name, answer in asked.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, answer=answer: answer())
    return fake


def test_peaks_of_before_do_not_count(allocator: FakeAllocator) -> None:
    allocator.use(900, 900)
    allocator.use(300, 400)
    memory = CudaMemory(DEVICE)
    assert memory.grown_bytes() == 0
    assert memory.driver_peak_bytes() == 100 + 400


def test_the_driver_s_peak_includes_what_was_given_back_and_what_others_use(
    allocator: FakeAllocator,
) -> None:
    memory = CudaMemory(DEVICE)
    allocator.use(650, 800)
    allocator.use(310, 500)
    assert memory.grown_bytes() == 350
    assert memory.driver_peak_bytes() == 100 + 800


def _by_address(view: object, device: torch.device) -> torch.Tensor:
    """What torch makes of memory that is described so (CUDA Array Interface, version 3)."""
    assert device == DEVICE
    described: dict[str, Any] = view.__cuda_array_interface__  # type: ignore[attr-defined]
    assert (described["typestr"], described["version"]) == ("|u1", 3)
    (size,), (address, read_only) = described["shape"], described["data"]
    assert not read_only
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_an_alias_is_the_same_bytes_with_type_and_shape(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "as_tensor", _by_address)
    held = torch.arange(24).view(2, 3, 4).to(dtype)
    for part in (held, held[1]):
        seen = as_seen_by(DEVICE, part)
        assert seen.dtype is dtype
        assert torch.equal(seen, part)
        assert seen.data_ptr() == part.data_ptr()
    seen.fill_(5)
    assert held[1].eq(5).all()
    assert held[0, 0, 0] == 0

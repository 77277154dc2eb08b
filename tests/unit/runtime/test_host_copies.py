"""What activations of layers on the CPU lie in while they cross the link."""

import pytest
import torch
from torch import Tensor

from tandem.memory.scratch import PINNED_LANE_BYTES
from tandem.runtime.host_copies import HostCopies

MOST_BYTES = PINNED_LANE_BYTES // 4


class Link:
    """Gives memory out that counts as pinned, and notes it and what is uploaded."""

    def __init__(self, *, pins: bool = True) -> None:
        self.blocks: list[Tensor] = []
        self.uploaded: list[Tensor] = []
        self.copies = HostCopies(self._upload, self._give if pins else None)

    def _give(self, size_bytes: int) -> Tensor:
        self.blocks.append(torch.zeros(size_bytes, dtype=torch.uint8))
        return self.blocks[-1]

    def _upload(self, tensor: Tensor) -> Tensor:
        self.uploaded.append(tensor)
        return tensor.clone()

    def has_pinned(self, tensor: Tensor) -> bool:
        return any(tensor.data_ptr() == block.data_ptr() for block in self.blocks)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_parts_are_views_of_pinned_memory_of_their_size(dtype: torch.dtype) -> None:
    link = Link()
    tensor = torch.arange(24).view(2, 3, 4).to(dtype)
    fetched = link.copies.fetched(tensor)
    brought = link.copies.brought(tensor, dtype)
    for made in (fetched, brought):
        assert (made.shape, made.dtype) == (tensor.shape, dtype)
        assert torch.equal(made, tensor)
    assert [block.nbytes for block in link.blocks] == [tensor.nbytes] * 2
    assert link.has_pinned(fetched)
    assert link.has_pinned(link.uploaded[0])


def test_types_are_changed_on_the_way() -> None:
    link = Link()
    tensor = torch.arange(6.0).view(2, 3)
    assert link.copies.fetched(tensor.bfloat16(), torch.float32).dtype is torch.float32
    assert link.copies.brought(tensor, torch.float16).dtype is torch.float16
    assert [block.nbytes for block in link.blocks] == [24, 12]
    assert torch.equal(link.uploaded[0], tensor.half())


@pytest.mark.parametrize(("extra", "pinned"), [(0, True), (4, False)])
def test_large_parts_do_without(extra: int, pinned: bool) -> None:
    link = Link()
    tensor = torch.ones((MOST_BYTES + extra) // 4)
    fetched = link.copies.fetched(tensor)
    link.copies.brought(tensor, torch.float32)
    assert torch.equal(fetched, tensor)
    assert fetched.data_ptr() != tensor.data_ptr()
    assert len(link.blocks) == 2 * pinned
    # what gets no pinned memory and has the right type is not copied on the host
    assert (link.uploaded[0].data_ptr() == tensor.data_ptr()) is not pinned


def test_the_limit_is_of_the_type_that_crosses() -> None:
    link = Link()
    tensor = torch.ones(MOST_BYTES // 4, dtype=torch.bfloat16)
    assert link.has_pinned(link.copies.fetched(tensor, torch.float32))
    larger = torch.ones(MOST_BYTES // 4 + 1, dtype=torch.bfloat16)
    assert not link.has_pinned(link.copies.fetched(larger, torch.float32))
    link.copies.brought(larger.float(), torch.bfloat16)
    assert link.has_pinned(link.uploaded[0])


def test_nothing_takes_no_memory() -> None:
    link = Link()
    nothing = torch.empty(0, 8)
    assert link.copies.fetched(nothing).shape == (0, 8)
    assert link.copies.brought(nothing, torch.bfloat16).shape == (0, 8)
    assert link.blocks == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_what_is_brought_may_be_overwritten_before_it_has_arrived(dtype: torch.dtype) -> None:
    link = Link()
    tensor = torch.arange(6.0)
    link.copies.brought(tensor, dtype)
    tensor.zero_()
    assert link.uploaded[0].tolist() == [0, 1, 2, 3, 4, 5]


def test_without_such_a_device_only_types_are_changed() -> None:
    link = Link(pins=False)
    tensor = torch.arange(6.0)
    assert torch.equal(link.copies.fetched(tensor, torch.float16), tensor.half())
    link.copies.brought(tensor, torch.float32)
    link.copies.brought(tensor, torch.float16)
    assert link.uploaded[0] is tensor
    assert link.uploaded[1].dtype is torch.float16

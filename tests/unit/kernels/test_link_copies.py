"""Which copies blocks take over a link, and that both kinds move the same bytes."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.devices.test_batch_copies import FakeDriver

from tandem.devices import batch_copies
from tandem.devices.batch_copies import BatchCopies
from tandem.kernels import link_copies
from tandem.kernels.link_copies import (
    BlockRun,
    LinkCopies,
    copy_runs,
    find_runs,
    gather_blocks,
)
from tandem.kernels.tiles import USUAL_TILES

PERMUTATIONS = st.permutations(range(12)).map(lambda order: np.array(order[:7], dtype=np.int64))


def test_runs_follow_each_other_in_both_pools() -> None:
    found = find_runs(np.array([3, 4, 5, 9, 10, 1]), np.array([0, 1, 2, 3, 5, 6]))
    assert found == [BlockRun(3, 0, 3), BlockRun(9, 3, 1), BlockRun(10, 5, 1), BlockRun(1, 6, 1)]
    assert find_runs(np.zeros(0, np.int64), np.zeros(0, np.int64)) == []


@given(PERMUTATIONS, PERMUTATIONS)
def test_runs_are_the_blocks_in_order_and_as_few_as_can_be(
    src_ids: np.ndarray, dst_ids: np.ndarray
) -> None:
    runs = find_runs(src_ids, dst_ids)
    assert [run.source + i for run in runs for i in range(run.count)] == src_ids.tolist()
    assert [run.target + i for run in runs for i in range(run.count)] == dst_ids.tolist()
    for run, following in pairwise(runs):
        ends = (run.source + run.count, run.target + run.count)
        assert ends != (following.source, following.target)


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8])
def test_copies_and_kernels_move_the_same_bytes(dtype: torch.dtype) -> None:
    source = torch.randint(0, 255, (3, 12, 2, 1, 16, 4)).to(dtype)
    src_ids, dst_ids = torch.tensor([7, 8, 2, 11]), torch.tensor([0, 1, 6, 3])
    expected = torch.zeros(3, 8, 2, 1, 16, 4, dtype=dtype)
    expected[:, dst_ids] = source[:, src_ids]
    by_copies, by_kernels = torch.zeros_like(expected), torch.zeros_like(expected)
    copy_runs(source, by_copies, find_runs(src_ids.numpy(), dst_ids.numpy()))
    gather_blocks(source, src_ids, by_kernels, dst_ids)
    assert torch.equal(by_copies, expected)
    assert torch.equal(by_kernels, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.uint8])
def test_batches_move_the_same_bytes_where_memory_is_pinned(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = FakeDriver(batch_copies._NEW)
    monkeypatch.setattr(link_copies, "stream_handle", lambda device: 7)
    source = torch.randint(0, 255, (3, 12, 2, 1, 16, 4)).to(dtype)
    src_ids, dst_ids = torch.tensor([7, 8, 2, 11]), torch.tensor([0, 1, 6, 3])
    expected = torch.zeros(3, 8, 2, 1, 16, 4, dtype=dtype)
    expected[:, dst_ids] = source[:, src_ids]
    for pinned, submitted in ((True, [7]), (False, [])):
        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor, pinned=pinned: pinned)
        target = torch.zeros_like(expected)
        driver.streams.clear()
        link = LinkCopies(source.device, BatchCopies(driver))
        link.copy(source, src_ids, target, dst_ids)
        assert torch.equal(target, expected)
        assert driver.streams == submitted


class FakePinned:
    """A link whose ends are both host memory, and one pinned: what is launched is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, pinned: bool) -> None:
        self.launched: list[str] = []

        def copies(*args: object) -> None:
            self.launched.append("copies")

        def kernels(*args: object) -> None:
            self.launched.append("kernels")

        monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned)
        monkeypatch.setattr(link_copies, "as_seen_by", lambda device, tensor: tensor)
        monkeypatch.setattr(link_copies, "copy_runs", copies)
        monkeypatch.setattr(link_copies, "gather_blocks", kernels)


@pytest.mark.parametrize(
    ("block_bytes", "ids", "pinned", "launched"),
    [
        (1 << 10, [0, 2, 4], True, "kernels"),
        (1 << 10, [0, 2, 4], False, "copies"),
        (USUAL_TILES.least_copy_bytes, [0, 2, 4], True, "copies"),
        (USUAL_TILES.least_copy_bytes // 4, [0, 1, 2, 3], True, "copies"),
        (USUAL_TILES.least_copy_bytes // 4, [0, 1, 2, 4], True, "kernels"),
        (1001, [0, 2, 4], True, "copies"),
    ],
)
def test_small_scattered_blocks_of_pinned_memory_go_by_kernels(
    block_bytes: int,
    ids: list[int],
    pinned: bool,
    launched: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    link = FakePinned(monkeypatch, pinned=pinned)
    pages = torch.empty(2, 8, block_bytes, dtype=torch.uint8)
    copies = LinkCopies(pages.device)
    copies.copy(pages, torch.tensor(ids), pages.clone(), torch.tensor(ids))
    assert link.launched == [launched]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 6, 64), torch.uint8), ((2, 6, 32), torch.uint8), ((2, 6, 64), torch.int8)],
    ids=["layers", "page", "type"],
)
def test_pools_of_another_layout_are_refused(
    shape: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = FakePinned(monkeypatch, pinned=True)
    pages, ids = torch.zeros(2, 6, 64, dtype=torch.uint8), torch.tensor([0, 2])
    other = torch.zeros(shape, dtype=dtype)
    copies = LinkCopies(pages.device)
    for source, target in ((pages, other), (other, pages)):
        with pytest.raises(ValueError, match="KV pools differ in layout"):
            copies.copy(source, ids, target, ids)
    assert link.launched == []


def test_the_driver_is_asked_once_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def pinned(tensor: torch.Tensor) -> bool:
        asked.append("pinned")
        return True

    def seen(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
        asked.append("seen")
        return tensor

    def capability(device: torch.device) -> int:
        asked.append("capability")
        return USUAL_TILES.least_copy_bytes

    monkeypatch.setattr(torch.Tensor, "is_pinned", pinned)
    monkeypatch.setattr(link_copies, "as_seen_by", seen)
    monkeypatch.setattr(link_copies, "least_copy_bytes", capability)
    pools = [torch.arange(2 * 8 * 64).to(torch.uint8).view(2, 8, 64) for _ in range(2)]
    target, ids = torch.zeros(2, 8, 64, dtype=torch.uint8), torch.tensor([0, 2, 4])
    link = LinkCopies(target.device)
    for pool in pools * 3:
        target.zero_()
        link.copy(pool, ids, target, ids)
        assert torch.equal(target[:, ids], pool[:, ids])
    assert sorted(asked) == ["capability", "pinned", "pinned", "seen", "seen"]

import pytest
import torch

from tandem.kernels.pages import PageShape, append_kv, copy_blocks


def test_append_writes_exactly_its_slots() -> None:
    pages = torch.full((5, 2, 3, 16, 4), -1.0)
    k, v = torch.rand(2, 4, 3, 4)
    slots = torch.tensor([0, 17, 79, 31])  # (block 0, 0), (1, 1), (4, 15), (1, 15)
    append_kv(pages, k, v, slots)
    for token, (block, offset) in enumerate([(0, 0), (1, 1), (4, 15), (1, 15)]):
        assert torch.equal(pages[block, 0, :, offset], k[token])
        assert torch.equal(pages[block, 1, :, offset], v[token])
    assert int((pages != -1).sum()) == 4 * 2 * 3 * 4


def test_append_rounds_to_the_pages_type() -> None:
    pages = torch.zeros(1, 2, 1, 16, 4, dtype=torch.bfloat16)
    k, v = torch.rand(2, 1, 1, 4)
    append_kv(pages, k, v, torch.tensor([3]))
    assert torch.equal(pages[0, 0, :, 3], k[0].bfloat16())


def test_copy_moves_blocks_of_all_layers() -> None:
    source = torch.rand(3, 6, 2, 2, 16, 4)
    target = torch.zeros(3, 4, 2, 2, 16, 4)
    copy_blocks(source, torch.tensor([5, 0]), target, torch.tensor([1, 3]))
    assert torch.equal(target[:, [1, 3]], source[:, [5, 0]])
    assert not target[:, [0, 2]].any()


@pytest.mark.parametrize(
    "other",
    [
        torch.zeros(2, 4, 2, 2, 16, 4),
        torch.zeros(3, 4, 2, 2, 32, 4),
        torch.zeros(3, 4, 2, 2, 16, 4).half(),
    ],
)
def test_copy_refuses_pools_of_another_layout(other: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="KV pools differ"):
        copy_blocks(torch.zeros(3, 6, 2, 2, 16, 4), torch.tensor([0]), other, torch.tensor([0]))


def test_page_shape_counts_keys_and_values() -> None:
    shape = PageShape.of(torch.zeros(7, 2, 3, 16, 4))
    assert shape == PageShape(kv_heads=3, block_size=16, head_dim=4)
    assert shape.numel == 2 * 3 * 16 * 4

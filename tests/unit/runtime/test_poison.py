"""Spoilt pages spoil what reads them, and nothing beside them is touched."""

import pytest
import torch

from tandem.kernels.pages import PageShape, gather_kv
from tandem.memory.page import KVPageSpec
from tandem.runtime.poison import poison_blocks, poison_slots
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat


def zero_pages(kv: KVType) -> tuple[KVPageSpec, torch.Tensor]:
    page = KVPageSpec(2, 16, 2, 40, kv)
    dtype = torch.uint8 if page.held_in_bytes else torch.float32
    return page, torch.zeros(page.pool_shape(3), dtype=dtype)


def numbers(page: KVPageSpec, layer: torch.Tensor) -> torch.Tensor:
    """`[blocks, 2 * kv_heads, block_size, head_dim]`."""
    shape = PageShape(page.local_kv_heads, page.block_size, page.head_dim, page.code_bits)
    every = torch.arange(len(layer) * 4)
    return gather_kv(layer, every, 16, 16, shape).view(len(layer), 4, 16, 40)


@pytest.mark.parametrize("kv", [DType.FLOAT32, *NarrowFloat, *CodeType])
def test_slots(kv: KVType) -> None:
    page, pages = zero_pages(kv)
    poison_slots(pages[1], torch.tensor([5, 33]), page)
    held, least = numbers(page, pages[1]), 200 if isinstance(kv, NarrowFloat) else 1e4
    assert (held[0, :, 5] > least).all()
    assert (held[2, :, 1] > least).all()
    assert int((held != 0).sum()) == 2 * 4 * 40
    assert not pages[0].any()


@pytest.mark.parametrize("kv", [DType.FLOAT32, *NarrowFloat, *CodeType])
def test_blocks(kv: KVType) -> None:
    page, pages = zero_pages(kv)
    poison_blocks(pages, [0, 2], page)
    for layer in pages:
        held = numbers(page, layer)
        assert (held[[0, 2]] > (200 if isinstance(kv, NarrowFloat) else 1e4)).all()
        assert not held[1].any()

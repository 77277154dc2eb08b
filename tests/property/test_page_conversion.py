"""Blocks that move between tiers of other types: what arrives, and what stays as it was."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.parity.quantized_reference import rounded
from torch import Tensor

from tandem.kernels import native
from tandem.kernels.page_conversion import convert_blocks, convert_from_host, convert_to_host
from tandem.kernels.pages import PageShape, copy_blocks, gather_kv
from tandem.kernels.tier_kernels import ReferenceKernels, TierKernels
from tandem.models.weights import torch_dtype
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat

LAYERS, BLOCKS = 2, 4
TYPES = st.sampled_from([*DType, *NarrowFloat, *CodeType])


@dataclass(frozen=True, slots=True)
class Pool:
    """Blocks of one tier and what reads and writes them."""

    kv: KVType
    pages: Tensor
    kernels: TierKernels

    @staticmethod
    def make(kv: KVType, shape: PageShape, *, compiled: bool = False) -> "Pool":
        bits = kv.bits if isinstance(kv, CodeType) else 0
        own = PageShape(shape.kv_heads, shape.block_size, shape.head_dim, bits)
        page = (2, own.kv_heads, own.block_size, own.head_dim)
        page = (own.quantized.page_bytes,) if bits else page
        dtype = torch_dtype(kv) if isinstance(kv, DType) else torch.uint8
        pages = torch.zeros((LAYERS, BLOCKS, *page), dtype=dtype)
        return Pool(kv, pages, kernels(own, compiled=compiled))

    def values(self) -> Tensor:
        """All that is held: float32 `[layers, blocks, 2 * kv_heads, block_size, head_dim]`."""
        shape = self.kernels.shape
        rows, size = 2 * shape.kv_heads, shape.block_size
        index = torch.arange(BLOCKS * rows)
        held = [gather_kv(layer, index, size, size, shape) for layer in self.pages]
        return torch.stack(held).view(LAYERS, BLOCKS, rows, size, shape.head_dim)

    def fill(self, values: Tensor) -> None:
        """Append `[layers, 2, tokens, kv_heads, head_dim]` to all slots."""
        planned = self.kernels.plan_append(torch.arange(values.shape[2]))
        for layer, (key, value) in zip(self.pages, values, strict=True):
            self.kernels.append(layer, key, value, planned)


def kernels(shape: PageShape, *, compiled: bool) -> TierKernels:
    if not compiled:
        return ReferenceKernels(torch.device("cpu"), shape, 1.0)
    from tandem.kernels.compiled_kernels import CompiledKernels
    from tandem.kernels.native_pool import NativePool

    return CompiledKernels(NativePool(1), shape.kv_heads, shape, 1.0)


shapes = st.builds(
    PageShape, st.integers(1, 3), st.sampled_from([16, 32]), st.sampled_from([4, 24, 64, 80])
)
moves = st.lists(
    st.tuples(
        st.booleans(),
        st.permutations(range(BLOCKS)),
        st.permutations(range(BLOCKS)),
        st.integers(1, BLOCKS),
    ),
    min_size=1,
    max_size=4,
)


def contents(shape: PageShape, seed: int) -> Tensor:
    size = (LAYERS, 2, BLOCKS * shape.block_size, shape.kv_heads, shape.head_dim)
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 3.0


@given(
    shape=shapes, kinds=st.tuples(TYPES, TYPES), moves=moves, seed=st.integers(0, 99),
    chunk_bytes=st.sampled_from([1, 1 << 14, 1 << 20]),
)  # fmt: skip
def test_moved_blocks_are_rounded_at_each_move_and_others_are_left_alone(
    shape: PageShape,
    kinds: tuple[KVType, KVType],
    moves: list[tuple[bool, list[int], list[int], int]],
    seed: int,
    chunk_bytes: int,
) -> None:
    pools = [Pool.make(kind, shape) for kind in kinds]
    pools[0].fill(contents(shape, seed))
    expected = [pool.values() for pool in pools]
    for back, sources, targets, count in moves:
        origin, target = (1, 0) if back else (0, 1)
        from_ids, to_ids = torch.tensor(sources[:count]), torch.tensor(targets[:count])
        source, into = pools[origin], pools[target]
        convert_blocks(
            source.pages, from_ids, source.kernels, into.pages, to_ids, into.kernels,
            chunk_bytes=chunk_bytes,
        )  # fmt: skip
        moved = expected[origin][:, from_ids]
        expected[target][:, to_ids] = rounded(moved, kinds[target])
        for pool, known in zip(pools, expected, strict=True):
            assert torch.equal(pool.values(), known)


@given(shape=shapes, kind=st.sampled_from([DType.FLOAT16, DType.BFLOAT16]), seed=st.integers(0, 99))
def test_a_wider_type_gives_back_every_byte(shape: PageShape, kind: DType, seed: int) -> None:
    narrow, wide = Pool.make(kind, shape), Pool.make(DType.FLOAT32, shape)
    narrow.fill(contents(shape, seed))
    before, ids = narrow.pages.clone(), torch.arange(BLOCKS)
    convert_blocks(narrow.pages, ids, narrow.kernels, wide.pages, ids.flip(0), wide.kernels)
    narrow.pages.zero_()
    convert_blocks(wide.pages, ids.flip(0), wide.kernels, narrow.pages, ids, narrow.kernels)
    assert torch.equal(narrow.pages, before)


@pytest.mark.skipif(not native.available(), reason="no compiled kernels")
@given(shape=shapes, kinds=st.tuples(TYPES, TYPES), seed=st.integers(0, 99))
def test_compiled_kernels_write_the_same_bytes(
    shape: PageShape, kinds: tuple[KVType, KVType], seed: int
) -> None:
    source = Pool.make(kinds[0], shape)
    source.fill(contents(shape, seed))
    ids = torch.tensor([2, 0, 3])
    made: list[Tensor] = []
    for compiled in (False, True):
        target = Pool.make(kinds[1], shape, compiled=compiled)
        convert_blocks(source.pages, ids, source.kernels, target.pages, ids.flip(0), target.kernels)
        made.append(target.pages.view(torch.uint8))
    assert torch.equal(*made)


@given(
    shape=shapes, kinds=st.tuples(TYPES, TYPES),
    orders=st.tuples(st.permutations(range(BLOCKS)), st.permutations(range(BLOCKS))),
    count=st.integers(1, BLOCKS), leaves=st.booleans(), seed=st.integers(0, 99),
    chunk_bytes=st.sampled_from([1, 1 << 14, 1 << 20]),
)  # fmt: skip
def test_what_crosses_a_link_is_the_host_s_pages_and_arrives_as_if_converted_in_place(
    shape: PageShape,
    kinds: tuple[KVType, KVType],
    orders: tuple[list[int], list[int]],
    count: int,
    leaves: bool,
    seed: int,
    chunk_bytes: int,
) -> None:
    source, target, expected = (Pool.make(kind, shape) for kind in (*kinds, kinds[1]))
    source.fill(contents(shape, seed))
    src_ids, dst_ids = (torch.tensor(order[:count]) for order in orders)
    convert_blocks(source.pages, src_ids, source.kernels, expected.pages, dst_ids, expected.kernels)
    crossed: list[int] = []

    def copy(src_pages: Tensor, from_ids: Tensor, dst_pages: Tensor, to_ids: Tensor) -> None:
        crossed.append(src_pages[0, 0].nbytes * len(from_ids))
        copy_blocks(src_pages, from_ids, dst_pages, to_ids)

    convert = convert_to_host if leaves else convert_from_host
    convert(
        source.pages, src_ids, source.kernels, target.pages, dst_ids, target.kernels, copy,
        chunk_bytes=chunk_bytes,
    )  # fmt: skip
    assert torch.equal(target.pages.view(torch.uint8), expected.pages.view(torch.uint8))
    on_host = target.pages if leaves else source.pages
    assert sum(crossed) == LAYERS * count * on_host[0, 0].nbytes


@pytest.mark.parametrize("convert", [convert_to_host, convert_from_host])
def test_a_move_of_no_blocks_asks_nobody_for_anything(convert: Callable[..., None]) -> None:
    shape = PageShape(1, 16, 4)
    source, target = Pool.make(DType.FLOAT16, shape), Pool.make(CodeType.INT8, shape)
    asked: list[str] = []

    class Kernels(ReferenceKernels):
        def plan_append(self, slots: Tensor) -> Tensor:
            asked.append("slots")
            return super().plan_append(slots)

    def copy(*_: Tensor) -> None:
        asked.append("copy")

    writer, ids = Kernels(torch.device("cpu"), target.kernels.shape, 1.0), torch.tensor([1])
    for moved in (ids[:0], ids):
        convert(source.pages, moved, source.kernels, target.pages, moved, writer, copy)
        assert asked == (["slots"] + ["copy"] * LAYERS if len(moved) else [])

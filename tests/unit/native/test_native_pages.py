"""Compiled append and merge against the torch kernels."""

import pytest
import torch

from tandem.kernels import native, pages, state
from tandem.kernels.dense import AttentionOutput

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import native_pages
from tandem.kernels.native_pool import NativePool, Signal

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
PAGES = [*DTYPES, torch.uint8]  # the last holds e4m3


@pytest.fixture(scope="module")
def pool() -> NativePool:
    return NativePool(2)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", PAGES)
@pytest.mark.parametrize("tokens", [0, 1, 20, 300])
def test_append_writes_what_torch_writes(
    pool: NativePool, source: torch.dtype, target: torch.dtype, tokens: int
) -> None:
    random = torch.Generator().manual_seed(0)
    # Over the whole range of the narrow types: subnormal, ties and beyond the largest.
    scale = torch.logspace(-10, 6, 64)
    qkv = (torch.randn(tokens, 10, 64, generator=random) * scale).to(source)
    k, v = qkv[:, 4:7], qkv[:, 7:]
    if target is torch.uint8 and tokens > 2:  # ties, what e4m3 cannot hold, and no numbers
        k[0], v[0, 0] = (torch.arange(192) / 1024).view(3, 64), -torch.arange(64) - 416.0
        k[1, 0, :3] = torch.tensor([torch.inf, -torch.inf, torch.nan])
    slots = torch.randperm(512, generator=random)[:tokens]
    given = torch.zeros(32, 2, 3, 16, 64, dtype=target)
    expected = given.clone()
    pages.append_kv(expected, k, v, slots)
    assert native_pages.append_kv(pool, given, k, v, slots).wait()
    assert same_bits(given, expected)


def test_append_waits_for_its_signal(pool: NativePool) -> None:
    gate, end = Signal(), Signal()
    k = torch.ones(1, 2, 8)
    given = torch.zeros(1, 2, 2, 16, 8)
    slot = torch.tensor([5])
    pending = native_pages.append_kv(pool, given, k, k, slot, after=[(gate, 1)], then=(end, 1))
    assert not pending.wait(0.002)
    assert int(given.sum()) == 0
    gate.set(1)
    assert end.wait(1, 30.0)
    assert int(given.sum()) == 32


def test_append_refuses_slots_that_do_not_exist(pool: NativePool) -> None:
    k = torch.ones(2, 2, 8)
    given = torch.zeros(2, 2, 2, 16, 8)
    for slots, message in [
        ([0, 32], "slot 32 does not exist"),
        ([-1, 3], "slot -1 does not exist"),
    ]:
        with pytest.raises(ValueError, match=message):
            native_pages.append_kv(pool, given, k, k, torch.tensor(slots))
    with pytest.raises(ValueError, match="k must have the shape"):
        native_pages.append_kv(pool, given, k, k, torch.tensor([1]))
    with pytest.raises(ValueError, match="same element type"):
        native_pages.append_kv(pool, given, k, k.half(), torch.tensor([1, 2]))
    with pytest.raises(ValueError, match="slots must be int64"):
        native_pages.append_kv(pool, given, k, k, torch.tensor([1, 2], dtype=torch.int32))
    assert int(given.sum()) == 0


@pytest.mark.parametrize("tokens", [0, 1, 200])
def test_merge_is_torchs_merge(pool: NativePool, tokens: int) -> None:
    random = torch.Generator().manual_seed(1)

    def draw() -> AttentionOutput:
        lse = 20 * torch.randn(tokens, 4, generator=random)
        lse[torch.rand(tokens, 4, generator=random) < 0.3] = -torch.inf
        return AttentionOutput(torch.randn(tokens, 4, 100, generator=random), lse)

    a, b = draw(), draw()
    pending = native_pages.merge_states(pool, a, b)
    assert pending.wait()
    torch.testing.assert_close(
        tuple(pending.result), state.merge_states(*a, *b), rtol=1e-5, atol=1e-6
    )
    alone = (a.lse > -torch.inf) & (b.lse == -torch.inf)
    assert torch.equal(pending.result.out[alone], a.out[alone])
    assert torch.equal(pending.result.lse[alone], a.lse[alone])


def test_merge_refuses_shapes_that_differ(pool: NativePool) -> None:
    a = AttentionOutput(torch.zeros(2, 4, 8), torch.zeros(2, 4))
    b = AttentionOutput(torch.zeros(3, 4, 8), torch.zeros(3, 4))
    with pytest.raises(ValueError, match="out_b must have the shape"):
        native_pages.merge_states(pool, a, b)


COPIES = [torch.tensor(ids) for ids in ([[5], [0]], [[1, 2, 3], [4, 5, 6]], [[9, 0, 4], [6, 1, 0]])]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8])
@pytest.mark.parametrize("ids", COPIES)
@pytest.mark.parametrize("size", [5, 64])
def test_copies_are_torchs_copies(
    pool: NativePool, dtype: torch.dtype, ids: torch.Tensor, size: int
) -> None:
    source = (torch.rand(3, 10, 2, 3, 16, size) * 100).to(dtype)
    given = torch.zeros(3, 7, 2, 3, 16, size, dtype=dtype)
    expected = given.clone()
    pages.copy_blocks(source, ids[0], expected, ids[1])
    assert native_pages.copy_blocks(pool, source, ids[0], given, ids[1]).wait()
    assert torch.equal(given, expected)


def test_a_copy_waits_for_its_signal(pool: NativePool) -> None:
    gate, end = Signal(), Signal()
    source, target = torch.ones(1, 1, 2, 1, 16, 4), torch.zeros(1, 1, 2, 1, 16, 4)
    block = torch.zeros(1, dtype=torch.int64)
    pending = native_pages.copy_blocks(
        pool, source, block, target, block, after=[(gate, 1)], then=(end, 1)
    )
    assert not pending.wait(0.002)
    assert not target.any()
    gate.set(1)
    assert end.wait(1, 30.0)
    assert torch.equal(target, source)


@pytest.mark.parametrize(
    ("source_ids", "target_ids", "message"),
    [
        ([6], [0], "source_ids names block 6, but there are 6"),
        ([0], [4], "target_ids names block 4, but there are 4"),
        ([-1], [0], "source_ids names block -1"),
        ([0, 1], [2, 2], "target_ids names a block twice"),
        ([0, 1], [2], "as many blocks must be written as are read"),
    ],
)
def test_copy_refuses_blocks_that_cannot_be(
    pool: NativePool, source_ids: list[int], target_ids: list[int], message: str
) -> None:
    source, target = torch.ones(1, 6, 2, 1, 16, 4), torch.zeros(1, 4, 2, 1, 16, 4)
    read, written = torch.tensor(source_ids), torch.tensor(target_ids)
    with pytest.raises(ValueError, match=message):
        native_pages.copy_now(pool, source, read, target, written)
    assert not target.any()


def test_copy_refuses_pools_of_another_layout(pool: NativePool) -> None:
    source, block = torch.zeros(3, 6, 2, 2, 16, 4), torch.tensor([0])
    for other, message in [
        (torch.zeros(2, 4, 2, 2, 16, 4), "as many layers"),
        (torch.zeros(3, 4, 2, 2, 32, 4), "must agree in element type and shape"),
        (torch.zeros(3, 4, 2, 2, 16, 4).half(), "must agree in element type and shape"),
        (torch.zeros(3, 4, 2, 2, 4, 16).mT, "target must be contiguous"),
    ]:
        with pytest.raises(ValueError, match=message):
            native_pages.copy_now(pool, source, block, other, block)


def test_copies_within_a_pool_may_not_meet(pool: NativePool) -> None:
    both = torch.rand(2, 4, 2, 1, 16, 4)
    before = both.clone()
    native_pages.copy_now(pool, both, torch.tensor([0, 1]), both, torch.tensor([2, 3]))
    assert torch.equal(both[:, 2:], before[:, :2])
    with pytest.raises(ValueError, match="block 1 of one pool would be read and written"):
        native_pages.copy_now(pool, both, torch.tensor([0, 1]), both, torch.tensor([1, 2]))


@pytest.mark.parametrize("tokens", [0, 1, 300])
def test_sinks_join_as_torchs_do(pool: NativePool, tokens: int) -> None:
    out, lse = torch.randn(tokens, 6, 64), torch.randn(tokens, 6) * 5
    lse[::3, 2] = -torch.inf
    out[::3, 2] = 0
    sinks = torch.tensor([-100.0, -1.0, 2.0, 90.0, -torch.inf, 0.0])
    expected = state.apply_sinks(out, lse, sinks)
    given = AttentionOutput(out.clone(), lse.clone())
    assert native_pages.apply_sinks(pool, given, sinks).wait()
    torch.testing.assert_close(tuple(given), tuple(expected), rtol=1e-6, atol=1e-6)

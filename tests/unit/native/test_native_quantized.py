"""Compiled append and attention over quantized pages against float64 and the torch kernels."""

from dataclasses import replace

import pytest
import torch
from tests.unit.kernels.attention_case import AttentionCase, exact_attention
from tests.unit.kernels.quantized_case import make_narrow_case, make_quantized_case
from tests.unit.native.tier_case import ISAS, TierCase, make_tier

from tandem.kernels import native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.narrow_floats import decode
from tandem.kernels.pages import PageShape, append_planned
from tandem.kernels.state import merge_states

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.compiled_kernels import CompiledKernels
from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pool import NativePool

TOLERANCE = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture(scope="module", params=ISAS)
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


@pytest.fixture(params=[8, 4])
def bits(request: pytest.FixtureRequest) -> int:
    return request.param


def attend(
    pool: NativePool,
    tier: TierCase,
    *,
    window: int = 0,
    soft_cap: float = 0.0,
    sinks: torch.Tensor | None = None,
) -> AttentionOutput:
    case = tier.case
    batch = NativeBatch.from_binding(
        tier.attention, case.shape, tier.query.shape[1], pool.num_threads, window
    )
    return paged_attention(
        pool, tier.query, tier.pages, batch, case.scale, soft_cap=soft_cap, sinks=sinks
    )


def append_now(
    pool: NativePool,
    pages: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
    shape: PageShape,
) -> None:
    CompiledKernels(pool, shape.kv_heads, shape, 1.0).append(pages, k, v, slots)


def assert_exact(pool: NativePool, case: AttentionCase) -> None:
    result = attend(pool, make_tier(case))
    torch.testing.assert_close(tuple(result), tuple(exact_attention(case)), **TOLERANCE)


@pytest.mark.parametrize("head_dim", [4, 20, 40, 128])
@pytest.mark.parametrize("longest", [8, 90])
def test_pages_of_one_byte_floats(pool: NativePool, head_dim: int, longest: int) -> None:
    rows = [(1, 1), (16, 1), (700, 1), (90, longest), (33, 5)]
    assert_exact(pool, make_narrow_case(rows, group=3, head_dim=head_dim))


@pytest.mark.parametrize("tokens", [1, 9])
def test_every_one_byte_float_is_read_as_what_it_means(pool: NativePool, tokens: int) -> None:
    # keys of a row are alike, and so are its values: attention gives them back
    codes = torch.tensor([c for c in range(256) if c & 0x7F != 0x7F], dtype=torch.uint8)
    values = decode(codes).view(-1, 1, 1, 1).expand(-1, tokens, 1, 20).contiguous()
    case = make_narrow_case([(tokens, tokens)] * len(codes), kv_heads=1, head_dim=20)
    keys, rows = [torch.zeros(tokens, 1, 20)] * len(codes), list(values)
    result = attend(pool, make_tier(replace(case, sources=(keys, rows))))
    torch.testing.assert_close(result.out, values.flatten(0, 1), rtol=1e-6, atol=0.0)


def test_nan_in_pages_of_one_byte_floats_shows(pool: NativePool) -> None:
    for tokens in (1, 9):
        case = make_narrow_case([(20, tokens), (20, tokens)], head_dim=20)
        assert case.sources is not None
        for dim in (2, 19):
            case.sources[1][0][3, 0, dim] = torch.nan
        out = attend(pool, make_tier(case)).out
        assert out[:tokens, 0].isnan().nonzero()[:, 1].unique().tolist() == [2, 19]
        assert not out[:, 1].isnan().any()
        assert not out[tokens:].isnan().any()


@pytest.mark.parametrize("block_size", [16, 64, 256])
@pytest.mark.parametrize("longest", [8, 90])
def test_lengths_around_block_boundaries(
    pool: NativePool, bits: int, block_size: int, longest: int
) -> None:
    lengths = [1, block_size - 1, block_size, block_size + 1, 3 * block_size + 5]
    rows = [(n, 1) for n in lengths] + [(n, min(n, longest)) for n in lengths]
    rows += [(block_size + 9, n) for n in range(2, 8)]
    assert_exact(pool, make_quantized_case(rows, bits, group=4, head_dim=32, block_size=block_size))


@pytest.mark.parametrize("head_dim", [4, 8, 20, 32, 40, 64, 80, 96, 100, 128, 192, 256, 512])
@pytest.mark.parametrize("longest", [3, 33])
def test_any_head_dim(pool: NativePool, bits: int, head_dim: int, longest: int) -> None:
    rows = [(70, 1), (33, longest)]
    assert_exact(pool, make_quantized_case(rows, bits, group=3, head_dim=head_dim))


def test_every_multiple_of_8_up_to_256(pool: NativePool, bits: int) -> None:
    for head_dim in range(8, 257, 8):
        rows = [(35, 1), (18, 5)]
        assert_exact(pool, make_quantized_case(rows, bits, kv_heads=1, group=3, head_dim=head_dim))


@pytest.mark.parametrize("group", [*range(1, 10), 31])
def test_any_group(pool: NativePool, bits: int, group: int) -> None:
    rows = [(45, 1), (20, 2), (40, 20)]
    assert_exact(pool, make_quantized_case(rows, bits, group=group, head_dim=64))


@pytest.mark.parametrize("garbage", [6e4, float("inf"), float("nan")])
@pytest.mark.parametrize("longest", [8, 30])
def test_unwritten_slots_do_not_change_one_bit(
    pool: NativePool, bits: int, garbage: float, longest: int
) -> None:
    rows = [(5, 1), (70, 1), (33, 1), (50, longest)]
    case = make_quantized_case(rows, bits, group=3, head_dim=40)
    dirty, clean = (attend(pool, make_tier(case, garbage=g)) for g in (garbage, 0.0))
    assert torch.equal(dirty.out, clean.out)
    assert torch.equal(dirty.lse, clean.lse)


def test_blocks_of_two_tiers_merge(pool: NativePool, bits: int) -> None:
    case = make_quantized_case([(34, 1), (100, 1), (48, 8)], bits, group=2, head_dim=64)
    near = make_tier(case, [[2], [0, 3, 6], [2]], select=True)
    far = make_tier(case, [[0, 1], [1, 2, 4, 5], [0, 1]], select=True)
    parts = [attend(pool, tier) for tier in (near, far)]
    torch.testing.assert_close(tuple(parts[0]), tuple(near.reference()), **TOLERANCE)
    merged = merge_states(*parts[0], *parts[1])
    torch.testing.assert_close(merged, tuple(exact_attention(case)), **TOLERANCE)


@pytest.mark.parametrize("longest", [8, 40])
def test_window_soft_cap_and_sinks(pool: NativePool, bits: int, longest: int) -> None:
    case = make_quantized_case([(3, 1), (300, 1), (70, longest)], bits, group=4, head_dim=64)
    sinks = torch.linspace(-2.0, 3.0, 8)
    result = attend(pool, make_tier(case), window=37, soft_cap=5.0, sinks=sinks)
    expected = exact_attention(case, window=37, soft_cap=5.0, sinks=sinks)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)


def test_a_long_row_is_cut_and_merged(bits: int) -> None:
    rows = [(3000, 1), (31, 1), (900, 6)]
    case = make_quantized_case(rows, bits, group=4, head_dim=64)
    for isa in ISAS:
        assert_exact(NativePool(3, isa=isa), case)


def test_a_nan_that_is_seen_shows(pool: NativePool, bits: int) -> None:
    case = make_quantized_case([(40, 1), (40, 1)], bits, kv_heads=1, head_dim=32)
    keys, values = case.appended
    keys[1][17, 0, 3] = torch.nan
    out = attend(pool, make_tier(replace(case, sources=(keys, values)))).out
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", [8, 80, 128])
def test_appended_bytes_are_those_of_torch(
    pool: NativePool, bits: int, head_dim: int, dtype: torch.dtype
) -> None:
    shape = PageShape(3, 16, head_dim, bits)
    k, v = (torch.randn(2, 40, 3, head_dim) * torch.tensor([1e-4, 1.0, 3e4])[:, None]).to(dtype)
    k[0, 0], k[1, 0, 0], k[2, 0, 0], v[3] = 0.0, torch.inf, torch.nan, -0.0
    v[4, 1] = 2.5
    slots = torch.randperm(64)[:40]
    ours, theirs = torch.full((2, 4, shape.quantized.page_bytes), 77, dtype=torch.uint8)
    append_now(pool, ours, k, v, slots, shape)
    append_planned(theirs, k, v, slots, shape)
    assert torch.equal(ours, theirs)


def test_bad_pages_are_refused(bits: int) -> None:
    pool, shape = NativePool(1), PageShape(2, 16, 32, bits)
    k = torch.randn(1, 2, 32)
    pages = torch.zeros(4, shape.quantized.page_bytes, dtype=torch.uint8)
    slot = torch.tensor([3])
    with pytest.raises(ValueError, match="slot 64 does not exist"):
        append_now(pool, pages, k, k, torch.tensor([64]), shape)
    with pytest.raises(ValueError, match="pages must have the shape"):
        append_now(pool, pages[:, 1:].contiguous(), k, k, slot, shape)
    with pytest.raises(ValueError, match="pages must be uint8"):
        append_now(pool, pages.to(torch.int16), k, k, slot, shape)
    with pytest.raises(ValueError, match="pages must be contiguous"):
        append_now(pool, pages[::2], k, k, slot, shape)
    with pytest.raises(ValueError, match="quantized to 8 or 4 bits, not 5"):
        append_now(pool, pages, k, k, slot, replace(shape, code_bits=5))
    tier = make_tier(make_quantized_case([(20, 1)], bits, head_dim=32))
    with pytest.raises(ValueError, match="pages must be"):
        attend(pool, replace(tier, pages=tier.pages.view(torch.int8)))
    odd = torch.zeros(pages.numel() + 1, dtype=torch.uint8)[1:].view(pages.shape)
    with pytest.raises(ValueError, match="pages must lie at a multiple of 2 bytes"):
        append_now(pool, odd, k, k, slot, shape)
    wide = torch.randn(1, 2, 516)
    with pytest.raises(ValueError, match="head_dim of quantized pages must be 1 to 512, not 516"):
        append_now(pool, pages, wide, wide, slot, shape)

"""Compiled decode attention against float64 and against the torch kernels."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.unit.kernels.attention_case import exact_attention, make_case
from tests.unit.native.tier_case import ISAS, TierCase, make_tier

from tandem.kernels import native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.state import merge_states

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.native_attention import (
    NativeBatch,
    attend_once,
    is_decode,
    paged_attention,
)
from tandem.kernels.native_pool import NativePool

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


@pytest.fixture(scope="module", params=ISAS)
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


def attend(pool: NativePool, tier: TierCase) -> AttentionOutput:
    return attend_once(pool, tier.query, tier.pages, tier.attention, tier.case.scale)


def assert_exact(result: AttentionOutput, tier: TierCase) -> None:
    expected = exact_attention(tier.case)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [16, 64, 256])
def test_lengths_around_block_boundaries(
    pool: NativePool, block_size: int, dtype: torch.dtype
) -> None:
    lengths = [1, block_size - 1, block_size, block_size + 1, 3 * block_size + 5]
    rows = [(n, 1) for n in lengths] + [(2, 2), (block_size + 3, 8), (2 * block_size, 5)]
    tier = make_tier(make_case(rows, group=4, head_dim=32, block_size=block_size, dtype=dtype))
    assert_exact(attend(pool, tier), tier)


def test_queries_may_lie_among_keys_and_values(pool: NativePool) -> None:
    tier = make_tier(make_case([(70, 1), (33, 3)], group=2, head_dim=32))
    tokens, heads, dim = tier.query.shape
    product = torch.full((tokens, heads + 3, dim), torch.nan)
    product[:, :heads] = tier.query
    assert_exact(attend(pool, replace(tier, query=product[:, :heads])), tier)


@pytest.mark.parametrize("head_dim", [4, 12, 20, 64, 80, 100, 128, 256])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_head_dim(pool: NativePool, head_dim: int, dtype: torch.dtype) -> None:
    tier = make_tier(make_case([(70, 1), (33, 3)], group=3, head_dim=head_dim, dtype=dtype))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_multiple_of_8_up_to_256(pool: NativePool, dtype: torch.dtype) -> None:
    for head_dim in range(8, 257, 8):
        rows = [(35, 1), (18, 5)]
        tier = make_tier(make_case(rows, kv_heads=1, group=3, head_dim=head_dim, dtype=dtype))
        assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_to_eight_queries_see_what_came_before_them(
    pool: NativePool, dtype: torch.dtype
) -> None:
    rows = [(context, n) for n in range(1, 9) for context in (n, 16, 40 + n)]
    tier = make_tier(make_case(rows, group=4, head_dim=40, dtype=dtype))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("group", [*range(1, 17), 31, 71])
def test_any_group(pool: NativePool, group: int) -> None:
    tier = make_tier(make_case([(45, 1), (20, 2)], group=group, head_dim=24, dtype=torch.float16))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("garbage", [1e30, 6e4, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unwritten_slots_do_not_change_one_bit(
    pool: NativePool, garbage: float, dtype: torch.dtype
) -> None:
    case = make_case([(5, 1), (70, 1), (33, 1), (20, 7)], group=3, head_dim=20, dtype=dtype)
    dirty, clean = (attend(pool, make_tier(case, garbage=g)) for g in (garbage, 0.0))
    assert torch.equal(dirty.out, clean.out)
    assert torch.equal(dirty.lse, clean.lse)


def test_blocks_of_one_tier_only(pool: NativePool) -> None:
    case = make_case([(34, 1), (100, 1), (48, 8)], group=2, dtype=torch.float16)
    near = make_tier(case, [[2], [0, 3, 6], [2]], select=True)
    far = make_tier(case, [[0, 1], [1, 2, 4, 5], [0, 1]], select=True)
    parts = [attend(pool, tier) for tier in (near, far)]
    torch.testing.assert_close(tuple(parts[0]), tuple(near.reference()), **TOLERANCE)
    merged = merge_states(*parts[0], *parts[1])
    torch.testing.assert_close(merged, tuple(exact_attention(case)), **TOLERANCE)


def test_queries_before_a_tiers_keys_see_nothing(pool: NativePool) -> None:
    tier = make_tier(make_case([(34, 1), (36, 8)], group=2), [[2], [2]])
    result = attend(pool, tier)
    before = torch.from_numpy(tier.attention.positions) < 32
    assert 0 < int(before.sum()) < len(before)
    assert torch.all(result.lse[before] == -torch.inf)
    assert torch.all(result.out[before] == 0)
    torch.testing.assert_close(tuple(result), tuple(tier.reference()), **TOLERANCE)


def test_rows_that_see_no_key_at_all(pool: NativePool) -> None:
    tier = make_tier(make_case([(34, 1), (50, 1)], group=2), [[2], [3]])
    unseen = replace(tier.attention, positions=np.array([31, 47], np.int32))
    result = attend_once(pool, tier.query, tier.pages, unseen, 1.0)
    assert torch.all(result.lse == -torch.inf)
    assert torch.all(result.out == 0)


def test_token_index_selects_queries(pool: NativePool) -> None:
    case = make_case([(20, 1), (30, 1), (33, 5)])
    held = [[0], [], [1, 2]]
    selected, given = make_tier(case, held, select=True), make_tier(case, held)
    assert torch.equal(attend(pool, selected).out, attend(pool, given).out)


@pytest.mark.parametrize("window", [1, 5, 16, 17, 40, 99, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sliding_window(pool: NativePool, window: int, threads: int) -> None:
    rows = [(3, 1), (16, 1), (100, 1), (1400, 1), (47, 8), (300, 5)]
    case = make_case(rows, group=4, head_dim=32, dtype=torch.float16)
    tier = make_tier(case)
    table = tier.attention.block_table.copy()
    for line, row in enumerate(case.rows):  # blocks behind every window may be gone
        gone = max(0, row.context - row.queries + 1 - window) // case.shape.block_size
        table[line, :gone] = -1
    attention = replace(tier.attention, block_table=table)
    batch = NativeBatch.from_binding(attention, case.shape, 8, threads, window)
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale)
    expected = exact_attention(case, window=window)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)
    assert batch.plan.total_keys == sum(
        min(row.context, window + row.queries - 1) for row in case.rows
    )


def test_a_sliding_window_over_two_tiers(pool: NativePool) -> None:
    case = make_case([(34, 1), (100, 1), (48, 8)], group=2)
    near = make_tier(case, [[2], [0, 3, 6], [2]])
    far = make_tier(case, [[0, 1], [1, 2, 4, 5], [0, 1]])
    parts = []
    for tier in (near, far):
        batch = NativeBatch.from_binding(tier.attention, case.shape, 4, 2, 30)
        parts.append(paged_attention(pool, tier.query, tier.pages, batch, case.scale))
    merged = merge_states(*parts[0], *parts[1])
    expected = exact_attention(case, window=30)
    torch.testing.assert_close(merged, tuple(expected), **TOLERANCE)


@pytest.mark.parametrize("cap", [0.5, 30.0, 1e4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_soft_capped_scores(pool: NativePool, cap: float, dtype: torch.dtype) -> None:
    case = make_case([(5, 1), (300, 1), (40, 4)], group=4, head_dim=32, dtype=dtype)
    case = replace(case, query=case.query * 20)
    tier = make_tier(case)
    batch = NativeBatch.from_binding(tier.attention, case.shape, 8, 2, 100)
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale, soft_cap=cap)
    expected = exact_attention(case, window=100, soft_cap=cap)
    error = max(1e-5, 3e-7 * cap)  # of a score
    torch.testing.assert_close(
        tuple(result), tuple(expected), rtol=error, atol=error, check_dtype=False
    )


@pytest.mark.parametrize(
    ("scale", "soft_cap", "message"),
    [
        (float("nan"), 0.0, "scale must be finite"),
        (1.0, -1.0, "soft_cap must be finite and positive"),
        (1.0, float("inf"), "soft_cap must be finite and positive"),
    ],
)
def test_impossible_scales_are_refused(scale: float, soft_cap: float, message: str) -> None:
    tier = make_tier(make_case([(20, 1)]))
    batch = NativeBatch.from_binding(tier.attention, tier.case.shape, 2, 1)
    with pytest.raises(ValueError, match=message):
        paged_attention(NativePool(1), tier.query, tier.pages, batch, scale, soft_cap=soft_cap)
    with pytest.raises(ValueError, match="window must be positive, or 0"):
        NativeBatch.from_binding(tier.attention, tier.case.shape, 2, 1, -1)


@pytest.mark.parametrize("factor", [30.0, 1e3, 1e30])
def test_extreme_scores(pool: NativePool, factor: float) -> None:
    case = make_case([(300, 1), (40, 4)], group=4, head_dim=32)
    case = replace(case, query=case.query * factor)
    tier = make_tier(case)
    result, exact = attend(pool, tier), exact_attention(case)
    torch.testing.assert_close(result.lse.double(), exact.lse, rtol=3e-6, atol=1e-5)
    # A score's own rounding, times its size, is what the weights can be off by.
    tolerance = min(1.0, 1e-5 * factor) if factor < 1e30 else 1e-6
    torch.testing.assert_close(result.out.double(), exact.out, rtol=tolerance, atol=tolerance)


def test_a_nan_that_is_seen_shows(pool: NativePool) -> None:
    tier = make_tier(make_case([(40, 1), (40, 1)], kv_heads=1))
    tier.pages[int(tier.attention.block_table[1, 1]), 0, 0, 3] = torch.nan
    out = attend(pool, tier).out
    assert torch.isfinite(out[0]).all()
    assert torch.isnan(out[1]).all()


@pytest.mark.parametrize("query_dtype", DTYPES)
def test_queries_of_another_type_than_pages(pool: NativePool, query_dtype: torch.dtype) -> None:
    case = make_case([(40, 1)], dtype=torch.float16)
    case = replace(case, query=case.query.to(query_dtype))
    tier = make_tier(case)
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_a_long_row_beside_short_ones_is_cut_and_merged(threads: int) -> None:
    rows = [(3000, 1), *[(30 + i, 1) for i in range(9)], (900, 6)]
    case = make_case(rows, group=4, head_dim=64, dtype=torch.float16)
    tier = make_tier(case)
    for isa in ISAS:
        pool = NativePool(threads, isa=isa)
        batch = NativeBatch.from_binding(tier.attention, case.shape, 8, threads)
        assert batch.plan.num_parts > threads
        assert batch.plan.total_keys == sum(r.context for r in case.rows)
        first, again = (
            paged_attention(pool, tier.query, tier.pages, batch, case.scale) for _ in range(2)
        )
        assert_exact(first, tier)
        assert torch.equal(first.out, again.out)
        assert torch.equal(first.lse, again.lse)


def test_an_empty_batch_is_empty(pool: NativePool) -> None:
    tier = make_tier(make_case([(20, 1)]))
    nothing = replace(
        tier.attention,
        query_start=np.zeros(1, np.int32),
        positions=np.zeros(0, np.int32),
        block_table=np.zeros((0, 0), np.int32),
    )
    result = attend_once(pool, tier.query[:0], tier.pages, nothing, 1.0)
    assert result.out.shape == (0, 2, 8)
    assert result.lse.shape == (0, 2)


def test_prefill_is_told_from_decode() -> None:
    assert is_decode(make_tier(make_case([(20, 8), (9, 1)])).attention)
    assert not is_decode(make_tier(make_case([(20, 9), (9, 1)])).attention)


Mutation = Callable[[TierCase], TierCase]


def with_arrays(**arrays: object) -> Mutation:
    def mutate(tier: TierCase) -> TierCase:
        return replace(tier, attention=replace(tier.attention, **arrays))

    return mutate


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """As many elements, at an odd address."""
    memory = bytearray(tensor.nbytes + 16)
    odd = torch.frombuffer(memory, dtype=tensor.dtype, offset=1, count=tensor.numel())
    return odd.view(tensor.shape)


REFUSED: list[tuple[Mutation, str]] = [
    (with_arrays(block_table=np.array([[1, 9], [3, 4]], np.int32)), "names block 9.* 5 pages"),
    (with_arrays(block_table=np.array([[1, -2], [3, 4]], np.int32)), "negative block -2"),
    (with_arrays(block_table=np.array([[1, 2], [3, 4]], np.int64)), "block_table must be int32"),
    (with_arrays(block_table=np.array([[1, 2], [3, 4]], np.int32).T), "block_table must be contig"),
    (with_arrays(positions=ints(19, 40)), "position 40 lies beyond its block table"),
    (with_arrays(positions=ints(-1, 19)), "a position is negative"),
    (with_arrays(positions=ints(19)), "query_start must run from 0 to the number of positions"),
    (with_arrays(query_start=ints(0, 2)), r"query_start must have the shape \[3\]"),
    (with_arrays(query_start=ints(0, 5, 2)), "row 0: query_start must not fall"),
    (with_arrays(query_start=ints(0, 2, 2), positions=ints(19, 3)), "positions must ascend"),
    (with_arrays(block_index=np.array([[1, 0], [0, 1]], np.int32)), "block_index must ascend"),
    (with_arrays(block_index=np.zeros((1, 2), np.int32)), "block_index must have the shape"),
    (with_arrays(token_index=np.array([0, 2])), "q must hold at least 3 tokens, not 2"),
    (with_arrays(token_index=np.array([0, -1])), "token_index must not be negative"),
    (lambda t: replace(t, query=t.query[:, :, :4].contiguous()), "q must have the shape"),
    (lambda t: replace(t, query=t.query.double()), "q must be float32, float16 or bfloat16"),
    (lambda t: replace(t, query=t.query.mT), "q must be contiguous"),
    (lambda t: replace(t, query=misaligned(t.query)), "q must lie at a multiple of 4 bytes"),
    (lambda t: replace(t, pages=misaligned(t.pages)), "pages must lie at a multiple of 4 bytes"),
    (lambda t: replace(t, pages=t.pages.to(torch.int16)), "pages must be float32, float16"),
    (lambda t: replace(t, pages=t.pages.transpose(2, 3)), "pages must be contiguous"),
    (lambda t: replace(t, pages=t.pages[0]), r"pages must be \[num_blocks, 2, kv_heads"),
]


@pytest.mark.parametrize(("mutate", "message"), REFUSED, ids=[m for _, m in REFUSED])
def test_bad_input_is_refused_and_the_pool_stays_usable(mutate: Mutation, message: str) -> None:
    pool = NativePool(1)
    tier = make_tier(make_case([(20, 1), (20, 1)]))
    bad = mutate(tier)
    shape = tier.case.shape
    with pytest.raises(ValueError, match=message):
        paged_attention(
            pool,
            bad.query,
            bad.pages,
            NativeBatch.from_binding(bad.attention, shape, 2, 1),
            1.0,
        )
    assert_exact(attend(pool, tier), tier)


def test_an_odd_head_size_is_refused() -> None:
    with pytest.raises(ValueError, match="head_dim must be a multiple of 4"):
        attend(NativePool(1), make_tier(make_case([(20, 1)], head_dim=6)))

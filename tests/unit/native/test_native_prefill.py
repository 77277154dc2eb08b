"""Compiled prefill attention against float64 and against the torch kernels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.unit.kernels.attention_case import exact_attention, make_case
from tests.unit.native.tier_case import ISAS, TierCase, make_tier

from tandem.kernels import native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.state import apply_sinks, merge_states

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels import _native
from tandem.kernels.native_attention import NativeBatch, attend_once, paged_attention
from tandem.kernels.native_pool import NativePool

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


@pytest.fixture(scope="module", params=ISAS)
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


def attend(pool: NativePool, tier: TierCase) -> AttentionOutput:
    return attend_once(pool, tier.query, tier.pages, tier.attention, tier.case.scale)


def batch_of(tier: TierCase, threads: int = 2, window: int = 0) -> NativeBatch:
    heads = tier.query.shape[1]
    return NativeBatch.from_binding(tier.attention, tier.case.shape, heads, threads, window)


def assert_exact(result: AttentionOutput, tier: TierCase) -> None:
    expected = exact_attention(tier.case)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)


def test_rows_longer_than_decode_takes_are_prefill() -> None:
    short, long = (make_tier(make_case([(20, n), (9, 1)])) for n in (8, 9))
    assert isinstance(batch_of(short).plan, _native.AttentionPlan)
    assert isinstance(batch_of(long).plan, _native.PrefillPlan)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [16, 64, 256])
def test_lengths_around_block_boundaries(
    pool: NativePool, block_size: int, dtype: torch.dtype
) -> None:
    rows = [(n, min(n, 40)) for n in (9, block_size - 1, block_size, block_size + 1)]
    rows += [(3 * block_size + 5, 3 * block_size + 5), (2 * block_size, 31), (70, 1), (5, 2)]
    tier = make_tier(make_case(rows, group=4, head_dim=32, block_size=block_size, dtype=dtype))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("head_dim", [4, 12, 20, 64, 80, 100, 128, 256, 512])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_head_dim(pool: NativePool, head_dim: int, dtype: torch.dtype) -> None:
    tier = make_tier(make_case([(70, 70), (33, 9)], group=3, head_dim=head_dim, dtype=dtype))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("group", [*range(1, 9), 31, 200])
def test_any_group(pool: NativePool, group: int) -> None:
    tier = make_tier(make_case([(45, 45), (20, 9)], group=group, head_dim=24))
    assert_exact(attend(pool, tier), tier)


@pytest.mark.parametrize("garbage", [1e30, 6e4, float("inf"), float("nan")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_unwritten_slots_do_not_change_one_bit(
    pool: NativePool, garbage: float, dtype: torch.dtype
) -> None:
    case = make_case([(5, 1), (70, 30), (33, 33), (20, 9)], group=3, head_dim=20, dtype=dtype)
    dirty, clean = (attend(pool, make_tier(case, garbage=g)) for g in (garbage, 0.0))
    assert torch.equal(dirty.out, clean.out)
    assert torch.equal(dirty.lse, clean.lse)


def test_blocks_of_one_tier_only(pool: NativePool) -> None:
    case = make_case([(34, 20), (100, 50), (48, 9)], group=2, dtype=torch.float16)
    near = make_tier(case, [[2], [0, 3, 6], [2]], select=True)
    far = make_tier(case, [[0, 1], [1, 2, 4, 5], [0, 1]], select=True)
    parts = [attend(pool, tier) for tier in (near, far)]
    torch.testing.assert_close(tuple(parts[0]), tuple(near.reference()), **TOLERANCE)
    merged = merge_states(*parts[0], *parts[1])
    torch.testing.assert_close(merged, tuple(exact_attention(case)), **TOLERANCE)


def test_queries_before_a_tiers_keys_see_nothing(pool: NativePool) -> None:
    tier = make_tier(make_case([(34, 9), (36, 36)], group=2), [[2], [2]])
    result = attend(pool, tier)
    before = torch.from_numpy(tier.attention.positions) < 32
    assert 0 < int(before.sum()) < len(before)
    assert torch.all(result.lse[before] == -torch.inf)
    assert torch.all(result.out[before] == 0)
    torch.testing.assert_close(tuple(result), tuple(tier.reference()), **TOLERANCE)


def test_a_row_that_sees_no_key_at_all(pool: NativePool) -> None:
    tier = make_tier(make_case([(50, 10)], group=2), [[3]])
    unseen = replace(tier.attention, positions=np.arange(10, 20, dtype=np.int32))
    result = attend_once(pool, tier.query, tier.pages, unseen, 1.0)
    assert torch.all(result.lse == -torch.inf)
    assert torch.all(result.out == 0)


def test_rows_without_a_token_are_empty(pool: NativePool) -> None:
    tier = make_tier(make_case([(40, 20), (30, 12)], group=2))
    starts = np.array([0, 0, 20, 20, 32], np.int32)
    table = np.repeat(tier.attention.block_table, 2, axis=0)
    attention = replace(tier.attention, query_start=starts, block_table=table)
    result = attend_once(pool, tier.query, tier.pages, attention, tier.case.scale)
    assert_exact(result, tier)


@pytest.mark.parametrize("window", [1, 5, 16, 17, 40, 99, 1000])
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sliding_window(pool: NativePool, window: int, threads: int) -> None:
    rows = [(100, 100), (1400, 60), (47, 9), (300, 200)]
    case = make_case(rows, group=4, head_dim=32, dtype=torch.float16)
    tier = make_tier(case)
    table = tier.attention.block_table.copy()
    for line, row in enumerate(case.rows):  # blocks behind every window may be gone
        gone = max(0, row.context - row.queries + 1 - window) // case.shape.block_size
        table[line, :gone] = -1
    tier = replace(tier, attention=replace(tier.attention, block_table=table))
    batch = batch_of(tier, threads, window)
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale)
    expected = exact_attention(case, window=window)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)
    assert batch.plan.total_keys == sum(
        min(row.context, window + row.queries - 1) for row in case.rows
    )


@pytest.mark.parametrize("cap", [0.5, 30.0, 1e4])
@pytest.mark.parametrize("dtype", DTYPES)
def test_soft_capped_scores(pool: NativePool, cap: float, dtype: torch.dtype) -> None:
    case = make_case([(300, 20), (40, 40)], group=4, head_dim=32, dtype=dtype)
    case = replace(case, query=case.query * 20)
    tier = make_tier(case)
    batch = batch_of(tier, 2, 100)
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale, soft_cap=cap)
    expected = exact_attention(case, window=100, soft_cap=cap)
    error = max(1e-5, 3e-7 * cap)  # of a score
    torch.testing.assert_close(
        tuple(result), tuple(expected), rtol=error, atol=error, check_dtype=False
    )


@pytest.mark.parametrize("factor", [30.0, 1e3, 1e30])
def test_extreme_scores(pool: NativePool, factor: float) -> None:
    case = make_case([(300, 20), (40, 40)], group=4, head_dim=32)
    case = replace(case, query=case.query * factor)
    result, exact = attend(pool, make_tier(case)), exact_attention(case)
    # Relative to the products' sizes: the sum of a lone key's may nearly vanish.
    torch.testing.assert_close(result.lse.double(), exact.lse, rtol=1e-6, atol=1e-6 * factor)
    # A score's own rounding, times its size, is what the weights can be off by.
    tolerance = min(1.0, 1e-5 * factor) if factor < 1e30 else 1e-6
    torch.testing.assert_close(result.out.double(), exact.out, rtol=tolerance, atol=tolerance)


def test_a_nan_that_is_seen_shows(pool: NativePool) -> None:
    tier = make_tier(make_case([(40, 20), (40, 20)], kv_heads=1))
    tier.pages[int(tier.attention.block_table[1, 0]), 0, 0, 3] = torch.nan
    out = attend(pool, tier).out
    assert torch.isfinite(out[:20]).all()
    assert torch.isnan(out[20:]).all()


@pytest.mark.parametrize("query_dtype", DTYPES)
def test_queries_of_another_type_than_pages(pool: NativePool, query_dtype: torch.dtype) -> None:
    case = make_case([(40, 20)], dtype=torch.float16)
    case = replace(case, query=case.query.to(query_dtype))
    tier = make_tier(case)
    assert_exact(attend(pool, tier), tier)


def test_queries_between_other_columns(pool: NativePool) -> None:
    tier = make_tier(make_case([(40, 20)], group=2, head_dim=12))
    wide = torch.full((20, 9, 12), torch.nan)
    wide[:, 2:6] = tier.query
    assert_exact(attend(pool, replace(tier, query=wide[:, 2:6])), tier)


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_long_prefixes_are_cut_and_merged_the_same_way_each_time(threads: int) -> None:
    rows = [(6000, 24), (300, 250), (9, 9)]
    tier = make_tier(make_case(rows, kv_heads=1, group=8, head_dim=64, dtype=torch.float16))
    for isa in ISAS:
        pool, batch = NativePool(threads, isa=isa), batch_of(tier, threads)
        assert batch.plan.num_parts > threads
        first, again = (
            paged_attention(pool, tier.query, tier.pages, batch, tier.case.scale) for _ in range(2)
        )
        assert_exact(first, tier)
        assert torch.equal(first.out, again.out)
        assert torch.equal(first.lse, again.lse)


@pytest.mark.parametrize("queries", [1, 30])
def test_sinks_of_a_complete_result(pool: NativePool, queries: int) -> None:
    case = make_case([(40, queries), (100, queries)], group=4, head_dim=32, dtype=torch.bfloat16)
    tier = make_tier(case)
    sinks = torch.tensor([-60.0, -1.0, 0.0, 3.0, 60.0, 200.0, -torch.inf, 1.0])
    batch = batch_of(tier)
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale, sinks=sinks)
    expected = exact_attention(case, sinks=sinks)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)
    plain = paged_attention(pool, tier.query, tier.pages, batch, case.scale)
    torch.testing.assert_close(tuple(result), apply_sinks(*plain, sinks), **TOLERANCE)


@pytest.mark.parametrize("rows", [[(3000, 1), (31, 1), (900, 6)], [(6000, 24), (9, 9)]])
@pytest.mark.parametrize("window", [0, 1500])
def test_a_sink_counts_once_where_a_row_is_cut(
    pool: NativePool, rows: list[tuple[int, int]], window: int
) -> None:
    case = make_case(rows, kv_heads=1, group=4, head_dim=64, dtype=torch.float16)
    tier = make_tier(case)
    sinks = torch.tensor([-5.0, 3.0, 9.0, 30.0])
    batch = batch_of(tier, 3, window)
    assert batch.plan.num_parts > 3
    result = paged_attention(pool, tier.query, tier.pages, batch, case.scale, sinks=sinks)
    expected = exact_attention(case, window=window, sinks=sinks)
    torch.testing.assert_close(tuple(result), tuple(expected), **TOLERANCE)


@pytest.mark.parametrize("sinks", [torch.zeros(7), torch.zeros(8, dtype=torch.float64)])
def test_sinks_that_do_not_fit_are_refused(pool: NativePool, sinks: torch.Tensor) -> None:
    tier = make_tier(make_case([(40, 20)], group=4))
    with pytest.raises(ValueError, match="sinks must"):
        paged_attention(pool, tier.query, tier.pages, batch_of(tier), 1.0, sinks=sinks)


def test_the_decode_plan_refuses_long_rows() -> None:
    tier = make_tier(make_case([(20, 9)]))
    shape, attention = tier.case.shape, tier.attention
    with pytest.raises(ValueError, match="9 query tokens; decode attention takes at most 8"):
        _native.AttentionPlan(
            2, shape.kv_heads, shape.block_size, shape.head_dim, attention.query_start,
            attention.positions, attention.block_table, None, None, 1,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block_table": np.array([[1, 2, 9]], np.int32)}, "names block 9.* 4 pages"),
        ({"block_table": np.array([[1, -2, 3]], np.int32)}, "negative block -2"),
        ({"positions": np.arange(30, 50, dtype=np.int32)}, "lies beyond its block table"),
        ({"positions": np.arange(39, 19, -1, dtype=np.int32)}, "positions must ascend"),
        ({"token_index": np.arange(1, 21)}, "q must hold at least 21 tokens, not 20"),
        ({"block_index": np.array([[0, 2, 1]], np.int32)}, "block_index must ascend"),
    ],
)
def test_bad_input_is_refused_and_the_pool_stays_usable(
    change: dict[str, np.ndarray], message: str
) -> None:
    pool, tier = NativePool(1), make_tier(make_case([(40, 20)]))
    bad = replace(tier, attention=replace(tier.attention, **change))
    with pytest.raises(ValueError, match=message):
        attend(pool, bad)
    assert_exact(attend(pool, tier), tier)

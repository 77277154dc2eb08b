import numpy as np
import pytest
import torch
from tests.unit.kernels.attention_case import exact_attention, make_case, tier_attention
from tests.unit.kernels.quantized_case import make_quantized_case

from tandem.kernels import attention_plan, attention_windows
from tandem.plan.binding import TierAttention

MIXED = [(5, 1), (33, 1), (200, 1), (64, 1), (40, 40), (50, 10), (17, 2), (90, 60)]
_TOLERANCE = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}


@pytest.mark.parametrize("group", [1, 4, 5, 7])
@pytest.mark.parametrize("block_size", [16, 64])
def test_mixed_batch_equals_the_dense_reference(group: int, block_size: int) -> None:
    case = make_case(MIXED, group=group, head_dim=20, block_size=block_size)
    result, _ = tier_attention(case)
    torch.testing.assert_close(tuple(result), tuple(exact_attention(case)), **_TOLERANCE)


@pytest.mark.parametrize("soft_cap", [0.0, 0.7])
@pytest.mark.parametrize("window", [0, 1, 15, 16, 40, 300])
@pytest.mark.parametrize("block_size", [16, 64])
def test_windows_and_soft_caps_equal_the_dense_reference(
    block_size: int, window: int, soft_cap: float
) -> None:
    case = make_case([*MIXED, (600, 600)], group=4, block_size=block_size)
    result, _ = tier_attention(case, window=window, soft_cap=soft_cap)
    expected = exact_attention(case, window=window, soft_cap=soft_cap)
    torch.testing.assert_close(tuple(result), tuple(expected), **_TOLERANCE)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("window", [0, 1, 40])
def test_windows_and_soft_caps_over_quantized_pages(bits: int, window: int) -> None:
    case = make_quantized_case([*MIXED, (600, 600)], bits, group=4, head_dim=32)
    result, _ = tier_attention(case, window=window, soft_cap=0.7)
    expected = exact_attention(case, window=window, soft_cap=0.7)
    torch.testing.assert_close(tuple(result), tuple(expected), **_TOLERANCE)


def test_blocks_before_every_window_are_not_read() -> None:
    # Whatever the table says about them: ids beyond the pages would fail.
    case = make_case([(200, 1), (200, 3)])
    attention = TierAttention(
        token_index=None,
        query_start=np.array([0, 1, 4], np.int32),
        num_decode=1,
        positions=np.array([199, 197, 198, 199], np.int32),
        block_table=np.array([[1 << 20] * 11 + [0, 1]] * 2, np.int32),
        block_index=None,
    )
    plan = attention_plan.plan_attention(attention, case.shape, window=21)
    pages = 2 * 2 * case.shape.kv_heads  # keys and values of two blocks
    assert all(int(group.gather.max()) < pages for group in plan.decode)
    assert all(int(span.gather.max()) < pages for span in plan.windows)
    assert len(plan.decode) == len(plan.windows) == 1


@pytest.mark.parametrize("garbage", [1e30, 6e4, 3e38, float("inf"), float("nan")])
def test_unwritten_slots_do_not_change_one_bit(garbage: float) -> None:
    case = make_case([(5, 1), (70, 1), (33, 1), (20, 7)], group=3)
    for window in (0, 9):
        dirty, _ = tier_attention(case, garbage=garbage, window=window)
        clean, _ = tier_attention(case, garbage=0.0, window=window)
        assert torch.equal(dirty.out, clean.out)
        assert torch.equal(dirty.lse, clean.lse)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_pages_are_attended_in_fp32(dtype: torch.dtype) -> None:
    case = make_case([(5, 1), (70, 1), (20, 7)], group=4, dtype=dtype)
    result, _ = tier_attention(case)
    assert result.out.dtype == result.lse.dtype == torch.float32
    torch.testing.assert_close(tuple(result), tuple(exact_attention(case)), **_TOLERANCE)


def test_queries_before_a_tiers_keys_see_nothing() -> None:
    # The tier holds logical block 2 only: positions 32 to 47.
    case = make_case([(34, 1), (48, 20)])
    result, tokens = tier_attention(case, [[2], [2]])
    assert list(tokens) == list(range(21))
    before = torch.tensor([p < 32 for row in case.positions() for p in row])
    assert torch.all(result.lse[before] == -torch.inf)
    assert torch.all(result.out[before] == 0)
    assert torch.isfinite(result.lse[~before]).all()


def test_token_index_selects_the_tiers_queries() -> None:
    case = make_case([(20, 1), (30, 1), (33, 5)])
    selected, tokens = tier_attention(case, [[0], [], [1, 2]], select=True)
    given, _ = tier_attention(case, [[0], [], [1, 2]])
    assert list(tokens) == [0, 2, 3, 4, 5, 6]
    assert torch.equal(selected.out, given.out)


@pytest.mark.parametrize("rows", [[(40, 1)], MIXED])
def test_sinks_join_the_softmax_without_a_value(rows: list[tuple[int, int]]) -> None:
    case, sinks = make_case(rows, group=2), torch.tensor([-3.0, 0.0, 2.0, 30.0])
    result, _ = tier_attention(case, sinks=sinks)
    expected = exact_attention(case, sinks=sinks)
    torch.testing.assert_close(tuple(result), tuple(expected), **_TOLERANCE)


def test_bounded_gathers_give_the_same_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case(MIXED, group=4)
    whole, _ = tier_attention(case)
    windowed, _ = tier_attention(case, window=50)
    page_bytes = case.shape.numel * 4
    monkeypatch.setattr(attention_plan, "DECODE_GATHER_BYTES", 5 * page_bytes)
    monkeypatch.setattr(attention_plan, "SPAN_GATHER_BYTES", 2 * page_bytes)
    monkeypatch.setattr(attention_windows, "TOKENS_PER_SPAN", 7)
    parts, _ = tier_attention(case)
    torch.testing.assert_close(tuple(parts), tuple(whole), **_TOLERANCE)
    parts, _ = tier_attention(case, window=50)
    torch.testing.assert_close(tuple(parts), tuple(windowed), **_TOLERANCE)


def test_plan_keeps_gathers_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case([(1, 1)])
    page_bytes = case.shape.numel * 4
    monkeypatch.setattr(attention_plan, "DECODE_GATHER_BYTES", 8 * page_bytes)
    monkeypatch.setattr(attention_plan, "SPAN_GATHER_BYTES", 3 * page_bytes)
    lengths = np.array([200, 16, 40, 100, 17, 90, 130, 1], np.int32)  # 16 per block
    att = TierAttention(
        token_index=None,
        query_start=np.arange(9, dtype=np.int32),
        num_decode=8,
        positions=lengths - 1,
        block_table=np.arange(8 * 13, dtype=np.int32).reshape(8, 13),
        block_index=None,
    )
    plan = attention_plan.plan_attention(att, case.shape)
    per_block = 2 * case.shape.kv_heads
    assert all(len(g.gather) <= 8 * per_block for g in plan.decode)
    assert all(len(s.gather) <= 3 * per_block for s in plan.spans)
    grouped = [int(t) for g in plan.decode for t in g.tokens]
    long = {p.tokens.start for s in plan.spans for p in s.pieces}
    assert sorted(grouped) == [1, 2, 3, 4, 5, 7]  # 200 and 130 tokens need more than 8 blocks
    assert long == {0, 6}

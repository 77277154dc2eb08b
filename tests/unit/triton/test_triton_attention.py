"""Attention on the Triton kernels against float64, with poisoned memory around what may be read."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.kernels.attention_case import AttentionCase, exact_attention, make_case
from tests.unit.kernels.quantized_case import make_narrow_case, make_quantized_case
from tests.unit.native.tier_case import make_tier

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import (
    DEVICE,
    WITH_DOT,
    WITH_E4M3,
    WITHOUT_DOT,
    attend,
    kernels_of,
)

from tandem.kernels.dense import AttentionOutput
from tandem.kernels.narrow_floats import decode
from tandem.kernels.state import merge_states
from tandem.kernels.triton_support import TritonDevice

UNITS = pytest.mark.parametrize("unit", [WITH_DOT, WITHOUT_DOT], ids=["dot", "no dot"])
TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def check(result: AttentionOutput, expected: AttentionOutput, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        tuple(result), tuple(expected), rtol=tolerance, atol=tolerance, check_dtype=False
    )


@UNITS
@pytest.mark.parametrize("context", [1, 16, 17, 65, 700])
def test_one_token_after_contexts_of_any_length(context: int, unit: TritonDevice) -> None:
    case = make_case([(context, 1)], group=3, head_dim=16)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@UNITS
def test_a_launch_serves_rows_of_other_lengths_in_the_same_memory(unit: TritonDevice) -> None:
    planned_for, now = ([(700, 1), (600, 1), (540, 1)], [(90, 1), (700, 1), (1, 1)])
    case = make_case(now, group=3, head_dim=16)
    tier, kernels = make_tier(case), kernels_of(case, unit)
    planned = kernels.plan(make_tier(make_case(planned_for, group=3, head_dim=16)).attention)
    written, fresh = planned.tiled, kernels.plan(tier.attention).tiled
    assert written.tiles[0].splits > 1
    for target, source in (
        (written.first, fresh.first), (written.end, fresh.end), (written.table, fresh.table),
    ):  # fmt: skip
        target.copy_(source)
    result = kernels.attend(tier.query.to(DEVICE), tier.pages.to(DEVICE), planned)
    found = AttentionOutput(result.out.cpu(), result.lse.cpu())
    check(found, exact_attention(case), torch.float32)


@UNITS
@pytest.mark.parametrize("window", [0, 20])
@pytest.mark.parametrize("bits", [0, 8, 4])
def test_rows_planned_from_the_device_s_numbers(bits: int, window: int, unit: TritonDevice) -> None:
    rows = [(90, 1), (700, 1), (1, 1)]
    case = make_quantized_case(rows, bits) if bits else make_case(rows, group=3, head_dim=16)
    tier, kernels = make_tier(case), kernels_of(case, unit)
    attention = tier.attention
    wide = np.zeros((len(rows), attention.block_table.shape[1] + 9), np.int32)  # of longer rows
    wide[:, : attention.block_table.shape[1]] = attention.block_table
    position = torch.from_numpy(attention.positions.astype(np.int64)).to(DEVICE)
    planned = kernels.plan_static(position, torch.from_numpy(wide).to(DEVICE), window)
    assert planned.num_tokens == len(rows)
    result = kernels.attend(tier.query.to(DEVICE), tier.pages.to(DEVICE), planned)
    found = AttentionOutput(result.out.cpu(), result.lse.cpu())
    check(found, attend(tier, unit, window=window), torch.float32)


@UNITS
@pytest.mark.parametrize("block_size", [1, 8, 24, 64])
def test_blocks_of_any_size(block_size: int, unit: TritonDevice) -> None:
    case = make_case([(50, 1), (33, 5)], group=2, block_size=block_size)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@UNITS
@pytest.mark.parametrize(("head_dim", "group"), [(8, 1), (40, 4), (64, 7), (128, 4)])
def test_heads(head_dim: int, group: int, unit: TritonDevice) -> None:
    case = make_case([(40, 1), (9, 1)], group=group, head_dim=head_dim, kv_heads=3)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@UNITS
def test_decode_and_prefill_rows_in_one_lane(unit: TritonDevice) -> None:
    case = make_case([(20, 1), (70, 1), (150, 90), (9, 2), (8, 8)], group=3, head_dim=16)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype: torch.dtype) -> None:
    # Triton's interpreter multiplies the bits of bfloat16 matrices as if they were integers
    unit = WITHOUT_DOT if dtype is torch.bfloat16 and DEVICE.type == "cpu" else WITH_DOT
    case = make_case([(300, 1), (20, 1), (70, 40)], group=4, head_dim=32, dtype=dtype)
    check(attend(make_tier(case), unit), exact_attention(case), dtype)


@UNITS
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("head_dim", [24, 96, 128])
def test_quantized_pages(bits: int, head_dim: int, unit: TritonDevice) -> None:
    case = make_quantized_case([(70, 1), (21, 1), (40, 20)], bits, group=2, head_dim=head_dim)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@pytest.mark.parametrize("block_size", [16, 64])
@pytest.mark.parametrize("bits", [8, 4])
def test_codes_multiplied_as_they_are(bits: int, block_size: int) -> None:
    rows = [(200, 1), (3, 1), (64, 1), (700, 1), (150, 2)]
    case = make_quantized_case(
        rows, bits, group=5, head_dim=128, block_size=block_size, dtype=torch.float16
    )
    tier = make_tier(case)
    check(attend(tier), exact_attention(case), torch.float16)
    check(attend(tier, window=50), exact_attention(case, window=50), torch.float16)


@pytest.mark.parametrize("bits", [8, 4])
def test_codes_of_heads_that_do_not_fill_their_groups(bits: int) -> None:
    case = make_quantized_case([(90, 1)], bits, head_dim=100, dtype=torch.float16)
    for query in case.query:
        query *= 20
    result = attend(make_tier(case), soft_cap=5.0)
    check(result, exact_attention(case, soft_cap=5.0), torch.float16)


@UNITS
@pytest.mark.parametrize("head_dim", [24, 96, 128])
def test_pages_of_one_byte_floats(head_dim: int, unit: TritonDevice) -> None:
    case = make_narrow_case([(70, 1), (21, 1), (700, 1), (40, 20)], group=2, head_dim=head_dim)
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


@pytest.mark.parametrize("unit", [WITH_DOT, WITH_E4M3], ids=["by integers", "by an instruction"])
@pytest.mark.parametrize("block_size", [16, 64])
def test_one_byte_floats_multiplied_as_float16(block_size: int, unit: TritonDevice) -> None:
    case = make_narrow_case(
        [(200, 1), (3, 1), (150, 40)],
        group=3, head_dim=40, block_size=block_size, dtype=torch.float16,
    )  # fmt: skip
    for query in case.query:
        query *= 1e-3  # of which float16 would have few bits, were it not for a power of two
    check(attend(make_tier(case), unit), exact_attention(case), torch.float16)


@pytest.mark.parametrize("window", [0, 100, 150])
@pytest.mark.parametrize("block_size", [16, 64, 128])
def test_steps_whole_and_at_the_ends(block_size: int, window: int) -> None:
    # steps of 64 keys: in a block, or over four; rows begin and end within them, or see but one
    rows = [(130, 1), (120, 1), (128, 1), (330, 1), (1, 1), (140, 75)]
    case = make_case(rows, group=2, head_dim=16, block_size=block_size, dtype=torch.float16)
    result = attend(make_tier(case), window=window)
    check(result, exact_attention(case, window=window), torch.float16)


@UNITS
def test_every_one_byte_float_is_read_as_what_it_means(unit: TritonDevice) -> None:
    # a key of one row is the only one that it sees: attention gives its value back
    codes = torch.tensor([c for c in range(256) if c & 0x7F != 0x7F], dtype=torch.uint8)
    values = decode(codes).view(-1, 1, 1).expand(-1, 1, 8).contiguous()
    case = make_narrow_case([(1, 1)] * len(codes), kv_heads=1)
    rows = list(values.split(1))
    case = replace(case, sources=(case.keys, rows), values=rows)
    result = attend(make_tier(case), unit)
    assert torch.equal(result.out, values)


@UNITS
def test_nan_in_pages_of_one_byte_floats_shows(unit: TritonDevice) -> None:
    case = make_narrow_case([(20, 1), (20, 1)])
    assert case.sources is not None
    case.sources[1][0][3, 0, 2] = torch.nan
    out = attend(make_tier(case), unit).out
    assert out.isnan().nonzero().tolist() == [[0, 0, 2]]


@UNITS
@pytest.mark.parametrize("window", [1, 7, 40, 1000])
def test_windows(window: int, unit: TritonDevice) -> None:
    case = make_case([(100, 1), (5, 1), (90, 60)], group=2)
    result = attend(make_tier(case), unit, window=window)
    check(result, exact_attention(case, window=window), torch.float32)


def test_what_lies_before_a_window_is_not_read() -> None:
    case = make_case([(300, 1)], group=2)
    tier = make_tier(case)
    table = tier.attention.block_table[0]
    for block in table[: (300 - 20) // case.shape.block_size]:
        tier.pages[int(block)] = torch.nan
    check(attend(tier, window=20), exact_attention(case, window=20), torch.float32)


@UNITS
def test_soft_cap(unit: TritonDevice) -> None:
    case = make_case([(60, 1), (40, 20)], group=2)
    for query in case.query:
        query *= 20
    result = attend(make_tier(case), unit, soft_cap=5.0)
    check(result, exact_attention(case, soft_cap=5.0), torch.float32)


@UNITS
def test_extreme_scores(unit: TritonDevice) -> None:
    case = make_case([(60, 1), (40, 20)], group=2)
    for query in case.query:
        query *= 3000
    check(attend(make_tier(case), unit), exact_attention(case), torch.float32)


def split_tiers(case: AttentionCase, **options: Any) -> AttentionOutput:
    """Even blocks in one tier, odd ones in another, merged."""
    size = case.shape.block_size
    counts = [-(-row.context // size) for row in case.rows]
    tokens = sum(row.queries for row in case.rows)
    out = torch.zeros(tokens, *case.query.shape[1:])
    lse = torch.full(out.shape[:2], -torch.inf)
    for parity in (0, 1):
        held = [list(range(parity, count, 2)) for count in counts]
        tier = make_tier(case, held, seed=parity)
        part = attend(tier, **options)
        merged, logs = merge_states(out[tier.tokens], lse[tier.tokens], part.out, part.lse)
        out[tier.tokens], lse[tier.tokens] = merged, logs
    return AttentionOutput(out, lse)


@pytest.mark.parametrize("window", [0, 30])
def test_tiers_of_a_row_merge_to_the_whole(window: int) -> None:
    case = make_case([(100, 1), (40, 1), (90, 60), (20, 20)], group=2)
    check(split_tiers(case, window=window), exact_attention(case, window=window), torch.float32)


def test_a_token_that_sees_no_key_of_the_tier() -> None:
    case = make_case([(40, 40)], group=2)
    tier = make_tier(case, [[1, 2]])
    result = attend(tier)
    assert (result.lse[:16] == -torch.inf).all()
    assert (result.out[:16] == 0).all()
    assert result.lse[16:].isfinite().all()


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_any_lane(data: st.DataObject) -> None:
    lengths = st.tuples(st.integers(1, 600), st.integers(1, 40)).map(lambda r: (max(r), min(r)))
    rows = data.draw(st.lists(lengths, min_size=1, max_size=4))
    kv_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    window = data.draw(st.sampled_from([0, 0, 13, 200]))
    unit = data.draw(st.sampled_from([WITH_DOT, WITHOUT_DOT]))
    head_dim = data.draw(st.sampled_from([8, 20, 32]))
    case = make_case(rows, kv_heads=kv_heads, group=group, head_dim=head_dim)
    result = attend(make_tier(case), unit, window=window)
    check(result, exact_attention(case, window=window), torch.float32)

"""Compiled attention, decode and prefill, is the torch kernels' attention, whatever the shape."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kernels.attention_case import AttentionCase, exact_attention, make_case
from tests.unit.kernels.quantized_case import quantized
from tests.unit.native.tier_case import ISAS, make_tier

from tandem.kernels import native
from tandem.kernels.dense import AttentionOutput
from tandem.kernels.state import merge_states

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

from tandem.kernels.native_attention import NativeBatch, paged_attention
from tandem.kernels.native_pool import NativePool

windows = st.one_of(st.just(0), st.integers(1, 250))
soft_caps = st.sampled_from([0.0, 2.0, 50.0])


@st.composite
def cases(draw: st.DrawFn) -> AttentionCase:
    most = draw(st.sampled_from([8, 200]))
    row = st.integers(1, 260).flatmap(
        lambda n: st.tuples(st.just(n), st.one_of(st.just(1), st.integers(1, min(n, most))))
    )
    case = make_case(
        draw(st.lists(row, min_size=1, max_size=5)),
        kv_heads=draw(st.sampled_from([1, 2, 3])),
        group=draw(st.integers(1, 16)),
        head_dim=4 * draw(st.integers(1, 64)),
        block_size=draw(st.sampled_from([16, 24, 64, 256])),
        dtype=draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16])),
        seed=draw(st.integers(0, 100)),
    )
    bits = draw(st.sampled_from([0, 0, 8, 4]))
    return quantized(case, bits) if bits else case


def assert_close(result: AttentionOutput, expected: AttentionOutput, soft_cap: float) -> None:
    """A capped score is off by more."""
    most = 2e-5 if soft_cap else 1e-5
    torch.testing.assert_close(
        tuple(result), tuple(expected), rtol=most, atol=most, check_dtype=False
    )


@pytest.fixture(scope="module", params=ISAS)
def pool(request: pytest.FixtureRequest) -> NativePool:
    return NativePool(2, isa=request.param)


@given(case=cases(), window=windows, soft_cap=soft_caps, data=st.data())
def test_one_tier_equals_reference_and_two_merged_equal_exact(
    pool: NativePool, case: AttentionCase, window: int, soft_cap: float, data: st.DataObject
) -> None:
    blocks = [list(range(-(-r.context // case.shape.block_size))) for r in case.rows]
    near = [[b for b in row if data.draw(st.booleans())] for row in blocks]
    far = [[b for b in row if b not in kept] for row, kept in zip(blocks, near, strict=True)]
    out = torch.zeros(case.query.shape)
    lse = torch.full(out.shape[:2], -torch.inf)
    for held in (near, far):
        if not any(held):
            continue
        tier = make_tier(case, held, select=True)
        heads = case.query.shape[1]
        batch = NativeBatch.from_binding(tier.attention, case.shape, heads, 2, window)
        part = paged_attention(pool, tier.query, tier.pages, batch, case.scale, soft_cap=soft_cap)
        if not window and not soft_cap:
            assert_close(part, tier.reference(), 0.0)
        where = tier.tokens
        out[where], lse[where] = merge_states(out[where], lse[where], part.out, part.lse)
    exact = exact_attention(case, window=window, soft_cap=soft_cap)
    assert_close(AttentionOutput(out, lse), exact, soft_cap)


@given(case=cases(), window=windows, soft_cap=soft_caps, seed=st.integers(0, 100))
def test_sinks_join_all_of_the_attention(
    pool: NativePool, case: AttentionCase, window: int, soft_cap: float, seed: int
) -> None:
    heads = case.query.shape[1]
    sinks = 4 * torch.randn(heads, generator=torch.Generator().manual_seed(seed))
    tier = make_tier(case)
    batch = NativeBatch.from_binding(tier.attention, case.shape, heads, 2, window)
    result = paged_attention(
        pool, tier.query, tier.pages, batch, case.scale, soft_cap=soft_cap, sinks=sinks
    )
    exact = exact_attention(case, window=window, soft_cap=soft_cap, sinks=sinks)
    assert_close(result, exact, soft_cap)

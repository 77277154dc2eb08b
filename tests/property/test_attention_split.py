"""However KV is divided over two tiers, merged attention is the attention over all of it."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kernels.attention_case import (
    AttentionCase,
    exact_attention,
    make_case,
    tier_attention,
)

from tandem.kernels.attention import AttentionOutput
from tandem.kernels.state import merge_states


@st.composite
def cases(draw: st.DrawFn) -> AttentionCase:
    rows = draw(
        st.lists(
            st.integers(1, 150).flatmap(
                lambda n: st.tuples(st.just(n), st.one_of(st.just(1), st.integers(1, n)))
            ),
            min_size=1,
            max_size=5,
        )
    )
    return make_case(
        rows,
        kv_heads=draw(st.sampled_from([1, 2, 3])),
        group=draw(st.sampled_from([1, 4, 5, 7])),
        head_dim=draw(st.sampled_from([8, 13, 20, 64, 128])),
        block_size=draw(st.sampled_from([16, 64])),
        seed=draw(st.integers(0, 100)),
    )


@given(case=cases(), data=st.data())
def test_split_and_merged_equals_whole_equals_exact(
    case: AttentionCase, data: st.DataObject
) -> None:
    garbage = data.draw(st.sampled_from([float("nan"), 1e30, -6e4]))
    window = data.draw(st.sampled_from([0, 1, 7, 16, 70]))
    rule: dict[str, Any] = {"window": window, "soft_cap": data.draw(st.sampled_from([0.0, 2.0]))}
    blocks = [list(range(-(-r.context // case.shape.block_size))) for r in case.rows]
    near = [[b for b in row if data.draw(st.booleans())] for row in blocks]
    far = [[b for b in row if b not in kept] for row, kept in zip(blocks, near, strict=True)]
    whole, _ = tier_attention(case, garbage=garbage, **rule)
    merged = _nothing(case)
    for held in (near, far):
        if any(held):
            part, tokens = tier_attention(case, held, garbage=garbage, **rule)
            where = torch.from_numpy(tokens)
            out, lse = merge_states(merged.out[where], merged.lse[where], part.out, part.lse)
            merged.out[where], merged.lse[where] = out, lse
    exact = exact_attention(case, **rule)
    for result in (whole, merged):
        torch.testing.assert_close(
            tuple(result), tuple(exact), rtol=1e-5, atol=1e-5, check_dtype=False
        )


def _nothing(case: AttentionCase) -> AttentionOutput:
    tokens, heads, _ = case.query.shape
    return AttentionOutput(torch.zeros_like(case.query), torch.full((tokens, heads), -torch.inf))

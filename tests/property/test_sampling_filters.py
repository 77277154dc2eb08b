"""Filters keep the same tokens as a naive sort, with the same probabilities."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.kernels.sampling_case import naive_probabilities

from tandem.kernels.draw import draw_tokens, filter_min_p, filter_top_k, filter_top_p
from tandem.kernels.weights import token_weights


@given(
    vocab=st.sampled_from([1, 2, 7, 100, 1500, 9000]),
    spread=st.sampled_from([0.01, 1.0, 6.0]),
    temperature=st.sampled_from([0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 1200, 10_000]),
    top_p=st.sampled_from([0.1, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.9]),
    seed=st.integers(0, 1000),
)
def test_weights_after_filters_equal_naive_probabilities(
    vocab: int, spread: float, temperature: float, top_k: int, top_p: float, min_p: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    row = (random.normal(size=vocab) * spread).astype(np.float32)
    # float32 as `SamplingRows` carries them, so that both sides see the same numbers.
    temperature, top_p, min_p = (float(np.float32(x)) for x in (temperature, top_p, min_p))
    logits = torch.from_numpy(row)[None]
    weights = token_weights(logits, logits.amax(-1), torch.tensor([temperature]))
    if top_k:
        filter_top_k(weights, logits, torch.tensor([top_k]), top_k)
    filter_top_p(weights, torch.tensor([top_p]))
    filter_min_p(weights, torch.tensor([min_p]))
    found = weights[0].double().numpy() / float(weights.sum())
    expected = naive_probabilities(row, temperature, top_k, top_p, min_p)
    assert not (found[expected == 0] > 0).any()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-11)


@given(
    weights=st.lists(st.integers(0, 2**42), min_size=1, max_size=40).filter(any),
    number=st.floats(0, 1, exclude_max=True),
)
def test_draw_within_a_group_inverts_the_cumulative_sum(weights: list[int], number: float) -> None:
    drawn = draw_tokens(torch.tensor([weights]), torch.tensor([[number, 0.5]], dtype=torch.float64))
    token = int(drawn[0])
    target = min(int(number * float(sum(weights))), sum(weights) - 1)
    assert sum(weights[:token]) <= target < sum(weights[: token + 1])

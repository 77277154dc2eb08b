import pytest
import torch

from tandem.kernels.dense import ScoreRule, dense_attention, plain_attention


@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("score_limit_bytes", [1, 1000, 1 << 20])
def test_elementary_operations_equal_the_fused_kernel(
    kv_heads: int, causal: bool, score_limit_bytes: int
) -> None:
    random = torch.Generator().manual_seed(1)
    q = torch.randn(2, 3, 40, 20, generator=random)
    k, v = torch.randn(2, 2, kv_heads, 40, 20, generator=random)
    fused = dense_attention(q, k, v, ScoreRule(0.3), causal=causal)
    plain = plain_attention(
        q, k, v, ScoreRule(0.3), causal=causal, score_limit_bytes=score_limit_bytes
    )
    torch.testing.assert_close(tuple(plain), tuple(fused), rtol=1e-5, atol=1e-5)


def test_mask_is_added_in_both() -> None:
    random = torch.Generator().manual_seed(2)
    q = torch.randn(2, 3, 4, 8, generator=random)
    k, v = torch.randn(2, 2, 3, 10, 8, generator=random)
    mask = torch.zeros(2, 1, 1, 10)
    mask[1, ..., 6:] = -torch.inf
    fused = dense_attention(q, k, v, ScoreRule(0.3), mask=mask)
    plain = plain_attention(q, k, v, ScoreRule(0.3), mask=mask)
    short = dense_attention(q[1:], k[1:, :, :6], v[1:, :, :6], ScoreRule(0.3))
    torch.testing.assert_close(tuple(plain), tuple(fused), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(fused.out[1:], short.out, rtol=1e-5, atol=1e-5)

"""What the GPU's smoke tests judge by, beside the host's attention in float32."""

import pytest
import torch
from tests.gpu import test_triton_on_cuda as on_cuda
from tests.gpu.exact_attention import exact_attention

from tandem.kernels.attention import AttentionBatch, paged_attention
from tandem.kernels.pages import PageShape


@pytest.mark.parametrize(
    ("bits", "held", "window", "soft_cap"),
    [
        (0, torch.float32, 0, 0.0),
        (0, torch.uint8, 0, 0.0),
        (8, torch.float32, 0, 0.0),
        (4, torch.float32, 500, 0.0),
        (0, torch.float32, 0, 5.0),
    ],
)
def test_it_is_the_host_s_but_for_rounding(
    bits: int, held: torch.dtype, window: int, soft_cap: float
) -> None:
    shape = PageShape(on_cuda._KV_HEADS, on_cuda._BLOCK, on_cuda._DIM, bits)
    lane, scale = on_cuda._lane(), on_cuda._DIM**-0.5
    pages = on_cuda._pages(shape, held, int(lane.block_table.max()) + 1)
    generator = torch.Generator().manual_seed(1)
    query = torch.randn(len(lane.positions), on_cuda._HEADS, on_cuda._DIM, generator=generator)
    exact = exact_attention(query, pages, lane, shape, scale, window=window, soft_cap=soft_cap)
    batch = AttentionBatch.from_binding(lane, torch.device("cpu"), shape, window)
    rounded = paged_attention(query, pages, batch, scale, soft_cap=soft_cap)
    assert exact.out.dtype is exact.lse.dtype is torch.float64
    for ours, theirs in zip(exact, rounded, strict=True):
        torch.testing.assert_close(ours, theirs.double(), atol=2e-5, rtol=2e-5)
        assert not torch.equal(ours, theirs.double())

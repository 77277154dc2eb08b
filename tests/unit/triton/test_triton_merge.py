"""Two tiers' attention merged in one launch, beside torch's."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.kernels.attention_case import make_case
from tests.unit.triton.triton_case import DEVICE, kernels_of

from tandem.kernels.dense import AttentionOutput
from tandem.runtime.lane_states import merge_parts

NOWHERE = -1
PLACES = {
    "both": ([0, 1, 2], [0, 1, 2]),
    "one each": ([0, NOWHERE, 1], [NOWHERE, 0, NOWHERE]),
    "some in both": ([NOWHERE, 0, 1, 2, NOWHERE], [0, 1, NOWHERE, 2, 3]),
}


def partial(tokens: int, heads: int, head_dim: int, seed: int) -> AttentionOutput:
    """Of as many tokens; the first one's first head saw no key."""
    random = torch.Generator().manual_seed(seed)
    out = torch.randn(tokens, heads, head_dim, generator=random)
    lse = 4 * torch.randn(tokens, heads, generator=random)
    out[0, 0], lse[0, 0] = 0.0, -torch.inf
    return AttentionOutput(out, lse)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("head_dim", [16, 24])
@pytest.mark.parametrize("name", PLACES)
def test_merging_as_torch_does(name: str, head_dim: int, dtype: torch.dtype) -> None:
    heads, lines = 3, [torch.tensor(line, dtype=torch.int32) for line in PLACES[name]]
    counts = [int((line >= 0).sum()) for line in lines]
    parts = [partial(count, heads, head_dim, seed) for seed, count in enumerate(counts)]
    kernels = kernels_of(make_case([(16, 1)], group=heads, head_dim=head_dim))
    here, there = (AttentionOutput(*(t.to(DEVICE) for t in part)) for part in parts)
    found = kernels.merge(here, there, torch.stack(lines).to(DEVICE), dtype).cpu()
    query = torch.empty(len(lines[0]), heads, head_dim)
    selected = [(line >= 0).nonzero()[:, 0] for line in lines]
    given = [(index, tuple(part)) for index, part in zip(selected, parts, strict=True)]
    expected = merge_parts(query, given)  # pyright: ignore[reportArgumentType]
    assert found.dtype == dtype
    tolerance = 1e-6 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(found.float(), expected, rtol=tolerance, atol=tolerance)


def test_who_is_in_one_tier_alone_gets_that_tier_s_attention_to_the_bit() -> None:
    here, there = partial(2, 4, 32, 0), partial(2, 4, 32, 1)
    there.out[0] = torch.nan  # of a token whose logits are nobody's
    kernels = kernels_of(make_case([(16, 1)], group=4, head_dim=32))
    places = torch.tensor([[0, 1, NOWHERE], [NOWHERE, NOWHERE, 1]], dtype=torch.int32)
    first, second = (AttentionOutput(*(t.to(DEVICE) for t in part)) for part in (here, there))
    found = kernels.merge(first, second, places.to(DEVICE), torch.float32).cpu()
    assert torch.equal(found, torch.cat([here.out, there.out[1:]]))

"""Linear maps give the same result on either CPU path."""

import pytest
import torch

from tandem.models import linear as module
from tandem.models.linear import add_linear, linear
from tandem.models.weights import Affine


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 64, 65])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_map_equals_the_product(bias: bool, rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 1024, generator=generator).to(dtype)
    weight = (torch.randn(2304, 1024, generator=generator) / 32).to(dtype)
    affine = Affine(weight, torch.randn(2304, generator=generator).to(dtype) if bias else None)
    expected = x.double() @ weight.double().t() + (0 if affine.bias is None else affine.bias)
    tolerance = 1e-4 if dtype == torch.float32 else 0.05

    torch.testing.assert_close(linear(affine, x).double(), expected, rtol=0.01, atol=tolerance)
    target = torch.ones(rows, 2304, dtype=dtype)
    add_linear(affine, x, target)
    torch.testing.assert_close(target.double(), 1 + expected, rtol=0.02, atol=tolerance)


def test_which_path_is_taken() -> None:
    large, small = torch.zeros(2048, 1024), torch.zeros(2047, 1024)
    prefers = module._prefers_onednn
    available = module._HAS_ONEDNN
    assert prefers(large, torch.zeros(4, 1024)) is available
    assert prefers(large, torch.zeros(64, 1024)) is available
    assert not prefers(large, torch.zeros(3, 1024))
    assert not prefers(large, torch.zeros(65, 1024))
    assert not prefers(small, torch.zeros(8, 1024))
    assert not prefers(large.bfloat16(), torch.zeros(8, 1024).bfloat16())

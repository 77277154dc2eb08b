"""Rotation and gated activations by the Triton kernels, beside torch's."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.unit.triton.triton_case import DEVICE

from tandem.kernels import triton_row_operations
from tandem.models.layer_steps import activate
from tandem.models.rotary import rotate, rotation_of

# Of the interpreter's numpy; on a GPU it is infinite, and the gate shut.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")

TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
# One step of the last bit: products and exponentials differ by less before they are rounded.
NEAR = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


def slices(tokens: int, *sizes: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Columns of one product, as fused maps give them."""
    whole = torch.randn(tokens, sum(sizes), generator=torch.Generator().manual_seed(tokens))
    return list((4 * whole).to(dtype).split(sizes, dim=1))


@TYPES
@pytest.mark.parametrize(("heads", "head_dim"), [(1, 16), (3, 24), (11, 80)])
def test_rotating_as_torch_does(heads: int, head_dim: int, dtype: torch.dtype) -> None:
    part, _ = slices(5, heads * head_dim, 7, dtype=dtype)
    given = part.unflatten(1, (heads, head_dim))
    positions = torch.tensor([0, 1, 17, 4095, 131071])
    cos, sin = rotation_of(positions, 10000.0 ** -torch.linspace(0, 1, head_dim // 2), 1.25)
    found = triton_row_operations.rotated(given.to(DEVICE), cos.to(DEVICE), sin.to(DEVICE))
    assert found.dtype == dtype
    assert found.is_contiguous()
    near = NEAR[dtype]
    torch.testing.assert_close(found.cpu(), rotate(given, (cos, sin)), rtol=near, atol=4 * near)


def test_rotating_what_is_normed_head_by_head_or_turned_round() -> None:
    heads = torch.randn(4, 6, 32)
    rotation = rotation_of(torch.arange(6), 0.5 ** torch.arange(16))
    given = heads.transpose(0, 1)  # tokens last in memory
    found = triton_row_operations.rotated(given.to(DEVICE), *(t.to(DEVICE) for t in rotation))
    torch.testing.assert_close(found.cpu(), rotate(given, rotation), rtol=2e-6, atol=1e-5)


@TYPES
@pytest.mark.parametrize("activation", sorted(triton_row_operations.GATED_ACTIVATIONS))
@pytest.mark.parametrize("columns", [1, 1500])
def test_gating_as_torch_does(columns: int, activation: str, dtype: torch.dtype) -> None:
    gate, up = slices(3, columns, columns, dtype=dtype)
    found = triton_row_operations.gated(activation, gate.to(DEVICE), up.to(DEVICE))
    assert found.dtype == dtype
    assert found.is_contiguous()
    near = NEAR[dtype]
    expected = activate(activation, gate).mul_(up)
    torch.testing.assert_close(found.cpu(), expected, rtol=2 * near, atol=near)


@pytest.mark.parametrize("activation", sorted(triton_row_operations.GATED_ACTIVATIONS))
def test_gates_that_are_huge_are_open_or_shut(activation: str) -> None:
    gate = torch.tensor([[-1e4, -100.0, 0.0, 100.0, 1e4, torch.inf, torch.nan]])
    up = torch.full_like(gate, 2.0)
    found = triton_row_operations.gated(activation, gate.to(DEVICE), up.to(DEVICE)).cpu()
    expected = torch.tensor([[0.0, 0.0, 0.0, 200.0, 2e4, torch.inf, torch.nan]])
    torch.testing.assert_close(found, expected, equal_nan=True)

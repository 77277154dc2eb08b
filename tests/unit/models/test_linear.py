"""Linear maps give the same result on either CPU path."""

import pytest
import torch

from tandem.models import linear as module
from tandem.models.linear import Path, add_linear, choose_path, linear
from tandem.models.weight_layout import Affine


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 4, 8, 64, 257])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_map_equals_the_product(
    bias: bool, rows: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 1024, generator=generator).to(dtype)
    weight = (torch.randn(2304, 1024, generator=generator) / 32).to(dtype)
    affine = Affine(weight, torch.randn(2304, generator=generator).to(dtype) if bias else None)
    if dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        monkeypatch.setattr(module, "_HAS_AMX", True)
    expected = x.double() @ weight.double().t() + (0 if affine.bias is None else affine.bias)
    tolerance = 1e-4 if dtype == torch.float32 else 0.05

    torch.testing.assert_close(linear(affine, x).double(), expected, rtol=0.01, atol=tolerance)
    target = torch.ones(rows, 2304, dtype=dtype)
    add_linear(affine, x, target)
    torch.testing.assert_close(target.double(), 1 + expected, rtol=0.02, atol=tolerance)


def test_large_float32_maps_take_the_path_that_was_fastest_for_their_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_HAS_ONEDNN", True)
    monkeypatch.setattr(module, "_IS_INTEL", True)
    wide, square, tall = torch.zeros(2048, 1024), torch.zeros(1024, 1024), torch.zeros(1024, 2048)
    torch_path, first, onednn = Path.TORCH, Path.WEIGHT_FIRST, Path.ONEDNN
    expected = {3: torch_path, 4: onednn, 8: first, 48: first, 49: onednn, 257: torch_path}
    assert {rows: choose_path(wide, rows) for rows in expected} == expected
    expected = {7: torch_path, 8: first, 48: first, 49: torch_path}
    assert {rows: choose_path(square, rows) for rows in expected} == expected
    expected = {3: torch_path, 4: onednn, 256: onednn, 257: torch_path}
    assert {rows: choose_path(tall, rows) for rows in expected} == expected
    assert choose_path(torch.zeros(1023, 1024), 8) is torch_path
    monkeypatch.setattr(module, "_IS_INTEL", False)
    assert {choose_path(wide, rows) for rows in (1, 4, 48, 512)} == {onednn}
    assert choose_path(torch.zeros(1023, 1024), 8) is torch_path


def test_bfloat16_leaves_torch_s_path_only_where_the_processor_has_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_HAS_ONEDNN", True)
    large = torch.zeros(2048, 1024, dtype=torch.bfloat16)
    monkeypatch.setattr(module, "_HAS_AMX", False)
    assert choose_path(large, 8) is Path.TORCH
    monkeypatch.setattr(module, "_HAS_AMX", True)
    assert choose_path(large, 1) is Path.WEIGHT_FIRST
    assert choose_path(large, 129) is Path.TORCH
    assert choose_path(large.view(1024, 2048), 33) is Path.TORCH
    assert choose_path(large.half(), 8) is Path.TORCH

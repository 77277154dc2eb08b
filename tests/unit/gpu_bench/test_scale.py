"""Sizes fit the device that is measured."""

from pathlib import Path

import pytest
import torch
from benchmarks.gpu import scale, tiles_part
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.full_scale import full
from benchmarks.gpu.host_device import HostDevice
from benchmarks.gpu.tiny_scale import tiny

from tandem.kernels.triton_support import TritonDevice
from tandem.spec.dtype import DType


@pytest.mark.parametrize(
    ("capability", "dtype"),
    [((7, 5), DType.FLOAT16), ((8, 0), DType.BFLOAT16), ((12, 0), DType.BFLOAT16)],
)
def test_a_card_without_bfloat16_is_measured_in_float16(
    capability: tuple[int, int], dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[torch.device] = []

    def found(device: torch.device) -> tuple[int, int]:
        asked.append(device)
        return capability

    monkeypatch.setattr(scale, "compute_capability", found)
    made = full()
    assert not asked, "no context before a part wants it: it would take the device's memory"
    assert (made.dtype, tiny().dtype) == (dtype, DType.BFLOAT16)
    assert asked == [torch.device("cuda", 0)]


def test_so_are_tiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Card(HostDevice):
        def __init__(self) -> None:
            super().__init__()
            self.device = torch.device("cuda", 0)

    monkeypatch.setattr(scale, "compute_capability", lambda device: (7, 5))
    monkeypatch.setattr(scale.Scale, "probed", lambda self: Card())
    monkeypatch.setattr(tiles_part, "unit_of", lambda device: TritonDevice(40, False))
    found = Findings("tiles", "", {}, tmp_path / "tiles.json")
    cases = tiles_part._Sweep(full(), found).cases()
    assert any(name.startswith("decode") and name.endswith("float16") for name in cases)
    assert not any("bfloat16" in name or name.startswith("prefill") for name in cases)

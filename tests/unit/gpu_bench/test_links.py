"""The link's part of `run_all.sh` measures the link, not all of the accelerator once more."""

from pathlib import Path

import pytest
from benchmarks.gpu import links_part
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.host_device import HostDevice
from benchmarks.gpu.tiny_scale import tiny

from tandem.probes.torch_accelerator import TorchAccelerator


def test_the_link_is_measured_without_any_maths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def maths(*_: object) -> None:
        raise AssertionError("this takes a minute of the part's two")

    for name in ("products", "coding", "decoding", "reading_prompts", "coding_pages"):
        monkeypatch.setattr(TorchAccelerator, name, maths)
    found = Findings("gpu links", "a command", {"git_commit": "1"}, tmp_path / "links.json")
    rates = links_part._link(HostDevice(), tiny(), found)
    assert set(rates) == {"to the device", "from the device", "each way at once"}
    assert {row.case for row in found.rows} == {"link", "launch"}
    assert all(row.value > 0 for row in found.rows)

from pathlib import Path

import pytest

from tandem.devices.cpu import is_intel


@pytest.mark.parametrize(("vendor", "expected"), [("GenuineIntel", True), ("AuthenticAMD", False)])
def test_the_maker_is_read_from_proc(tmp_path: Path, vendor: str, expected: bool) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    assert is_intel(tmp_path) is expected


def test_without_proc_it_is_nobody_s(tmp_path: Path) -> None:
    assert not is_intel(tmp_path)

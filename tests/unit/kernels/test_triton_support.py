"""What Triton needs beside itself is missed before an engine starts, not by its first kernel."""

import shutil
import sysconfig
from pathlib import Path

import pytest

from tandem.kernels import triton_support


@pytest.fixture(autouse=True)
def equipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with Triton, gcc and Python's headers; returns the folder of these."""
    (tmp_path / "Python.h").touch()
    monkeypatch.setattr(triton_support, "available", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name == "gcc" else None)
    monkeypatch.setattr(sysconfig, "get_path", lambda name, scheme: str(tmp_path))
    for name in ("CC", "CPATH", "C_INCLUDE_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_nothing_speaks_against_it() -> None:
    assert triton_support.reason_against() is None


def test_triton_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_support, "available", lambda: False)
    assert "not installed" in (triton_support.reason_against() or "")


def test_a_compiler_is_missing_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "gcc or clang" in (triton_support.reason_against() or "")
    monkeypatch.setenv("CC", "zig cc")
    assert triton_support.reason_against() is None


def test_headers_are_missing_unless_they_may_be_elsewhere(
    monkeypatch: pytest.MonkeyPatch, equipped: Path
) -> None:
    (equipped / "Python.h").unlink()
    assert "Python.h" in (triton_support.reason_against() or "")
    monkeypatch.setenv("CPATH", "/opt/include")
    assert triton_support.reason_against() is None

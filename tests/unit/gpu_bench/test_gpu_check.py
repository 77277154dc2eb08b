"""The runner of the smoke tests: what it builds with, and what a run tells that is cut off."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

_SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "gpu_check.py"


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def commands(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What is run, without running it."""
    run: list[list[str]] = []

    def noted(command: list[str], **_: Any) -> SimpleNamespace:
        run.append(command)
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    monkeypatch.setattr(check.subprocess, "run", noted)
    return run


@pytest.mark.parametrize("has", [{"cmake", "ninja"}, {"cmake", "ninja", "make"}])
def test_the_cpu_kernels_are_built_without_make(
    check: ModuleType,
    commands: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    has: set[str],
) -> None:
    monkeypatch.setattr(check, "tool", lambda name: f"/bin/{name}" if name in has else None)
    assert check.build_native() == "built"
    assert "-DCMAKE_MAKE_PROGRAM=/bin/ninja" in commands[0]
    folder = commands[0][commands[0].index("-B") + 1]
    monkeypatch.setattr(check, "tool", lambda name: f"/bin/{name}" if name != "ninja" else None)
    assert check.build_native() == "built"
    assert "-G" not in commands[3]
    assert folder not in commands[3]  # CMake refuses what another generator has used


def test_what_lacks_for_building_is_named(
    check: ModuleType, commands: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "tool", lambda name: "/bin/cmake" if name == "cmake" else None)
    assert "ninja (or make) missing" in check.build_native()
    assert commands == []


def test_kernels_that_cannot_be_built_fail_the_check_but_not_the_gpus_tests(
    check: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    def broken() -> str:
        raise RuntimeError("cmake failed")

    monkeypatch.setattr(check, "build_native", broken)
    monkeypatch.setattr(check, "run_with_pytest", lambda: 0)
    monkeypatch.setattr(check.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")
    assert check.main() == 1
    assert "CPU kernels cmake failed" in capsys.readouterr().out
    monkeypatch.setattr(check, "build_native", lambda: "built")
    assert check.main() == 0


def test_a_failure_is_told_at_once(tmp_path: Path) -> None:
    """A run that never ends has told of the test that failed before."""
    tests = tmp_path / "test_gpu.py"
    tests.write_text(
        "import os, sys\n"
        "def test_one():\n    assert 'this' == 'that'\n"
        "def test_two():\n    sys.__stdout__.flush()\n    os._exit(9)\n"
    )
    script = f"""
import importlib.util, pathlib
spec = importlib.util.spec_from_file_location("gpu_check", {str(_SCRIPT)!r})
check = importlib.util.module_from_spec(spec)
spec.loader.exec_module(check)
check.TESTS = pathlib.Path({str(tmp_path)!r})
check.run_with_pytest()
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 9
    assert "assert 'this' == 'that'" in run.stdout
    assert "test_gpu.py::test_one failed in" in run.stdout

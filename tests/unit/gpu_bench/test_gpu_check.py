"""The runner of the smoke tests: what it builds with, and what a run tells that is cut off."""

import importlib.util
import subprocess
import sys
import time
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
    def broken() -> str:
        raise RuntimeError("cmake failed")

    gpu(check, monkeypatch)
    run: list[str] = []

    def noted(path: Path) -> Any:
        run.append(path.name)
        return check.Tally(passed=1)

    monkeypatch.setattr(check, "build_native", broken)
    monkeypatch.setattr(check, "run_with_pytest", noted)
    monkeypatch.setattr(check, "run_apart", lambda path, *_: noted(path))
    assert check.main([]) == 1
    assert "CPU kernels cmake failed" in capsys.readouterr().out
    assert check.main(["engine"]) == 0, "files that are named are tested with what there is"
    monkeypatch.setattr(check, "build_native", lambda: "built")
    assert check.main([]) == 0
    assert run[:5] == [f"test_{name}_on_cuda.py" for name in check.ORDER]


def gpu(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if there were one."""
    import torch

    monkeypatch.setattr(check.faulthandler, "dump_traceback_later", lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda index: "a GPU")


def test_what_others_rest_on_is_tested_first(check: ModuleType) -> None:
    """Every file has its place."""
    there = {path.name for path in (_SCRIPT.parents[1] / "tests" / "gpu").glob("test_*.py")}
    assert there == {check.path_of(name).name for name in check.ORDER}
    assert check.named_tests() == list(check.ORDER)
    assert check.ORDER.index("triton") < check.ORDER.index("engine")
    with pytest.raises(SystemExit):
        check.main(["no-such-file"])


_TESTS = """
import os, unittest
def test_good(): pass
def test_bad(): assert 'this' == 'that'
def test_left_out(): raise unittest.SkipTest('no such kernel')
def test_end(): os._exit(9)
"""


def test_tests_that_compile_have_processes_of_their_own(
    check: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One that breaks its process fails alone, and one that takes too long is ended."""
    path = tmp_path / "test_triton_on_cuda.py"
    path.write_text(_TESTS)
    script = tmp_path / "script.py"  # as the script, where there is a GPU
    script.write_text(f"""
import importlib.machinery, pathlib, runpy, sys, types
torch = types.ModuleType("torch")
torch.__spec__, torch.__version__ = importlib.machinery.ModuleSpec("torch", None), "2"
torch.cuda = types.SimpleNamespace(is_available=lambda: True, get_device_name=lambda index: "")
sys.modules["torch"] = torch
sys.argv[0] = {str(_SCRIPT)!r}
names = runpy.run_path(sys.argv[0])
names["named_tests"].__globals__["TESTS"] = pathlib.Path({str(tmp_path)!r})
sys.exit(names["main"]())
""")
    monkeypatch.setattr(check, "__file__", str(script))
    assert check.run_apart(path, 2, 60.0) == check.Tally(passed=1, failed=2, skipped=1)
    slow = tmp_path / "test_kernels_on_cuda.py"
    slow.write_text("import threading\ndef test_endless(): threading.Event().wait()\n")
    assert check.run_one(slow, "test_endless", time.monotonic()) == check.Tally(failed=1)
    told = capsys.readouterr().out
    for said in (
        "::test_good passed in",
        "assert 'this' == 'that'",
        "::test_left_out skipped (no such kernel)",
        "::test_endless FAILED: it took too long",
    ):
        assert said in told


def test_a_run_passes_if_a_test_has_and_none_failed(check: ModuleType) -> None:
    tally = check.Tally
    assert tally(passed=1, skipped=3).status == 0
    assert tally(passed=5, failed=1).status == 1
    assert tally(skipped=3).status == check.SKIPPED
    assert tally().status == 1


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
check.run_with_pytest(pathlib.Path({str(tests)!r}))
"""
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert run.returncode == 9
    assert "assert 'this' == 'that'" in run.stdout
    assert "::test_one failed in" in run.stdout

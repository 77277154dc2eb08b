"""Run the GPU smoke tests with whatever Python and torch the machine has, offline.

Uses pytest where it is installed; otherwise calls the test functions itself. Tests under
`tests/gpu` therefore take no fixtures, import no pytest, and raise `unittest.SkipTest` to skip.
Exits with 0 only if at least one test ran and none failed.
"""

import faulthandler
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import traceback
import unittest
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "gpu"
TIME_LIMIT_S = 240  # of the tests; the CPU kernels are compiled before
# Tokenizers, templates and the server are the front end's: a GPU machine need not have them.
ENGINE_MODULES = ("torch", "numpy", "safetensors")


def missing_modules() -> list[str]:
    """Modules that the engine needs and this Python lacks."""
    return [name for name in ENGINE_MODULES if importlib.util.find_spec(name) is None]


def tool(name: str) -> str | None:
    """A program of this Python's, or else of the machine."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def build_native() -> str:
    """Compile the CPU kernels for this Python, beside their sources; says what was done.

    Raises:
        RuntimeError: the tools are there, but the build fails.
    """
    cmake, ninja = tool("cmake"), tool("ninja")
    lacking = [] if cmake else ["cmake"]
    if ninja is None and tool("make") is None:
        lacking.append("ninja (or make)")
    if importlib.util.find_spec("nanobind") is None:
        lacking.append("nanobind")
    if cmake is None or lacking:
        return f"not built, {' and '.join(lacking)} missing: host attention runs on torch"
    # a folder for each, since CMake refuses one that the other was used in
    by = ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"] if ninja else []
    name = f"gpu-check-{sys.version_info.major}{sys.version_info.minor}{'-ninja' if by else ''}"
    folder = ROOT / "build" / "native" / name
    for command in (
        [cmake, "-S", str(ROOT / "native"), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", *by,
         "-DSKBUILD_STATE=editable", f"-DPython_EXECUTABLE={sys.executable}"],
        [cmake, "--build", str(folder), "--parallel"],
        [cmake, "--install", str(folder), "--prefix", str(folder / "out")],
    ):  # fmt: skip
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return "built"


def load(path: Path) -> ModuleType:
    """Import one test file under its own name."""
    spec = importlib.util.spec_from_file_location(f"gpu_check_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def tests_of(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield (name, function) of each test in a file; loading the file counts as one if it fails."""
    try:
        module = load(path)
    except Exception as error:  # noqa: BLE001 - a broken file must not hide the others
        yield f"{path.name} (import)", partial(fail, error)
        return
    for name, value in vars(module).items():
        if name.startswith("test_") and callable(value):
            yield f"{path.name}::{name}", value


def fail(error: Exception) -> None:
    """Stand in for the tests of a file that could not be loaded."""
    raise error


def outcome_of(test: Callable[[], object]) -> str:
    """Run one test: `passed`, `skipped (reason)` or `FAILED` with the traceback on stderr."""
    try:
        test()
    except unittest.SkipTest as reason:
        return f"skipped ({reason})"
    except Exception:  # noqa: BLE001 - a test runner reports whatever a test raises
        traceback.print_exc()
        return "FAILED"
    return "passed"


def run_plainly() -> int:
    """Run every test without pytest; returns the exit status."""
    outcomes: list[str] = []
    for path in sorted(TESTS.glob("test_*.py")):
        for name, test in tests_of(path):
            began_s = time.monotonic()
            outcomes.append(outcome_of(test))
            print(f"{name} {outcomes[-1]} in {time.monotonic() - began_s:.2f} s", flush=True)
    passed, failed = outcomes.count("passed"), outcomes.count("FAILED")
    print(f"{passed} passed, {failed} failed, {len(outcomes) - passed - failed} skipped")
    return 0 if passed and not failed else 1


class PassCounter:
    """A pytest plugin: pytest itself calls a run good in which every test was skipped, and tells
    why a test failed at the end of all, which a run that takes too long does not come to.
    """

    def __init__(self) -> None:
        self.passed = 0

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count tests whose body ran to its end; tell of failures, and what each test took."""
        self.passed += report.when == "call" and report.passed
        if report.failed:
            print(f"\n{report.longreprtext}")
        if report.when == "call" or not report.passed:
            took = f"{report.outcome} in {report.duration:.2f} s"
            print(f"\n{report.nodeid} {took}", flush=True)


def run_with_pytest() -> int:
    """Run every test with pytest, without the settings and plugins of the other tests."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-c", "/dev/null", "--rootdir", str(ROOT), "--confcutdir", str(TESTS)]
    plugins_off = ["-p", "no:cacheprovider", "-p", "no:faulthandler"]
    counter = PassCounter()
    status = int(pytest.main([str(TESTS), *options, *plugins_off], plugins=[counter]))
    return status if counter.passed else max(status, 1)


def main() -> int:
    """Check the machine, run the tests, report the time."""
    missing = missing_modules()
    if missing:
        print(f"gpu-check: this Python ({sys.executable}) lacks {', '.join(missing)}")
        return 1
    began_s = time.monotonic()
    import torch

    if not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no CUDA device; run it on a GPU machine")
        return 1
    print(f"gpu-check: torch {torch.__version__}, {torch.cuda.get_device_name(0)}", flush=True)
    try:
        told, is_built = build_native(), True
    except RuntimeError as error:  # what the GPU does can be told all the same
        told, is_built = str(error), False
    print(f"gpu-check: CPU kernels {told}", flush=True)
    faulthandler.dump_traceback_later(TIME_LIMIT_S, exit=True)
    with_pytest = importlib.util.find_spec("pytest") is not None
    status = run_with_pytest() if with_pytest else run_plainly()
    status = status if is_built else max(status, 1)
    verdict = "passed" if status == 0 else "failed"
    print(f"gpu-check: {verdict} in {time.monotonic() - began_s:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main())

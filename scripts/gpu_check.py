"""Run the GPU smoke tests with whatever Python and torch the machine has, offline.

Uses pytest where it is installed; otherwise calls the test functions itself. Tests under
`tests/gpu` therefore take no fixtures, import no pytest, and raise `unittest.SkipTest` to skip.
Exits with 0 only if at least one test ran and none failed, with 77 if all were skipped.

    gpu_check.py                       compile the CPU kernels, then all tests
    gpu_check.py --build-only          compile the CPU kernels
    gpu_check.py triton engine         the tests of these files
    gpu_check.py triton::test_experts  one test
"""

import argparse
import faulthandler
import importlib.util
import os
import shutil
import subprocess
import sys
import time
import traceback
import unittest
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "gpu"
ORDER = ("probes", "triton", "kernels", "engine", "offline")
"""What test files are about. What others rest on comes first, so that a wrong kernel is told before
the engines that it fails.
"""
APART = ("triton",)
"""Files whose tests have a process each, several at once: they compile many kernels, one to three
seconds each, and one that breaks its device does not fail those behind it.
"""
SKIPPED = 77
"""Exit status of tests that were all skipped."""
TIME_LIMIT_S = 240.0  # of the tests; the CPU kernels are compiled before
_MOST_PROCESSES = 8  # each has a context, of half a GiB of the device's memory
_LATE_S = 5.0  # for telling of a process that took too long
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
    """Import one test file under its own name; what it shares with others lies beside it."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
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


@dataclass(frozen=True, slots=True)
class Tally:
    """How many tests ended how."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    @property
    def status(self) -> int:
        """Of a process that ran them."""
        if self.failed or not (self.passed or self.skipped):
            return 1
        return 0 if self.passed else SKIPPED


def path_of(name: str) -> Path:
    """The test file of that name."""
    return TESTS / f"test_{name}_on_cuda.py"


def named_tests() -> list[str]:
    """All test files' names, those in `ORDER` first."""
    there = {path.stem.removeprefix("test_").removesuffix("_on_cuda"): path
             for path in sorted(TESTS.glob("test_*.py"))}  # fmt: skip
    return [
        *(name for name in ORDER if name in there),
        *(name for name in there if name not in ORDER),
    ]


def run_plainly(path: Path, only: str = "") -> Tally:
    """Run a file's tests without pytest; `only`: one of them."""
    tally = Tally()
    for name, test in tests_of(path):
        if only and name not in (f"{path.name}::{only}", f"{path.name} (import)"):
            continue
        began_s = time.monotonic()
        outcome = outcome_of(test)
        tally += Tally(outcome == "passed", outcome == "FAILED", outcome.startswith("skipped"))
        print(f"{name} {outcome} in {time.monotonic() - began_s:.2f} s", flush=True)
    return tally


def run_apart(path: Path, processes: int, limit_s: float) -> Tally:
    """Run a file's tests in a process each, so many at once, of so many seconds in all."""
    ends_s = time.monotonic() + limit_s
    names = [name.partition("::")[2] for name, _ in tests_of(path)]
    if "" in names:  # it cannot be loaded
        return run_plainly(path)
    with ThreadPoolExecutor(processes) as pool:
        runs = [pool.submit(run_one, path, name, ends_s) for name in names]
        return sum((run.result() for run in runs), Tally())


def run_one(path: Path, test: str, ends_s: float) -> Tally:
    """One test in a process of its own; what it prints comes at once, when it has ended."""
    name = path.stem.removeprefix("test_").removesuffix("_on_cuda")
    command = [sys.executable, "-u", __file__, f"{name}::{test}"]
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=False,
            timeout=max(0.1, ends_s - time.monotonic()),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        print(f"{path.name}::{test} FAILED: it took too long", flush=True)
        return Tally(failed=1)
    print(f"{run.stdout}{run.stderr}", end="", flush=True)
    return Tally(run.returncode == 0, run.returncode not in (0, SKIPPED), run.returncode == SKIPPED)


class Counter:
    """A pytest plugin that counts; pytest itself tells why a test failed at the end of all, which a
    run that takes too long does not come to.
    """

    def __init__(self) -> None:
        self.tally = Tally()

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count tests; tell of failures, and what each test took."""
        ran = report.when == "call"
        self.tally += Tally(ran and report.passed, report.failed, report.skipped)
        if report.failed:
            print(f"\n{report.longreprtext}")
        if ran or not report.passed:
            took = f"{report.outcome} in {report.duration:.2f} s"
            print(f"\n{report.nodeid} {took}", flush=True)


def run_with_pytest(path: Path) -> Tally:
    """Run a file's tests with pytest, without the settings and plugins of the other tests."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-c", "/dev/null", "--rootdir", str(ROOT), "--confcutdir", str(TESTS)]
    plugins_off = ["-p", "no:cacheprovider", "-p", "no:faulthandler"]
    counter = Counter()
    status = int(pytest.main([str(path), *options, *plugins_off], plugins=[counter]))
    # a file that cannot be loaded has no tests that fail
    unloaded = status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or (
        status and not counter.tally.failed
    )
    return counter.tally + Tally(failed=bool(unloaded))


def run_tests(names: Sequence[str], limit_s: float) -> Tally:
    """Run files of tests, or single ones (`FILE::TEST`)."""
    ends_s = time.monotonic() + limit_s - _LATE_S
    processes = min(_MOST_PROCESSES, len(os.sched_getaffinity(0)) // 2)
    with_pytest = importlib.util.find_spec("pytest") is not None
    tally = Tally()
    for name in names:
        file, _, test = name.partition("::")
        path = path_of(file)
        if test:
            tally += run_plainly(path, test)
        elif file in APART and processes > 1:
            tally += run_apart(path, processes, ends_s - time.monotonic())
        else:
            tally += run_with_pytest(path) if with_pytest else run_plainly(path)
    return tally


def main(words: Sequence[str] | None = None) -> int:
    """Check the machine, run the tests, report the time."""
    arguments = parser().parse_args(words)
    missing = missing_modules()
    if missing:
        print(f"gpu-check: this Python ({sys.executable}) lacks {', '.join(missing)}")
        return 1
    is_built = True
    if arguments.build_only or not arguments.names:
        is_built = tell_of_build()
    if arguments.build_only:
        return 0 if is_built else 1
    import torch

    if not torch.cuda.is_available():
        print(f"gpu-check: torch {torch.__version__} sees no CUDA device; run it on a GPU machine")
        return 1
    print(f"gpu-check: torch {torch.__version__}, {torch.cuda.get_device_name(0)}", flush=True)
    began_s = time.monotonic()
    faulthandler.dump_traceback_later(arguments.seconds, exit=True)
    tally = run_tests(arguments.names or named_tests(), arguments.seconds)
    faulthandler.cancel_dump_traceback_later()
    status = tally.status if is_built else 1
    verdict = {0: "passed", SKIPPED: "all skipped"}.get(status, "failed")
    counts = f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped"
    print(f"gpu-check: {verdict} in {time.monotonic() - began_s:.0f} s ({counts})")
    return status


def tell_of_build() -> bool:
    """Compile the CPU kernels; False if that fails: what the GPU does can be told all the same."""
    began_s = time.monotonic()
    try:
        told, is_built = build_native(), True
    except RuntimeError as error:
        told, is_built = str(error), False
    took_s = time.monotonic() - began_s
    print(f"gpu-check: CPU kernels {told} ({took_s:.0f} s)", flush=True)
    return is_built


def parser() -> argparse.ArgumentParser:
    """Of the command line."""
    made = argparse.ArgumentParser(prog="gpu_check.py", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("names", nargs="*", type=test_name, metavar="FILE[::TEST]")
    made.add_argument("--build-only", action="store_true", help="compile the CPU kernels, no more")
    made.add_argument(
        "--seconds", type=float, default=TIME_LIMIT_S, help=f"of the tests; {TIME_LIMIT_S:.0f}"
    )
    return made


def test_name(word: str) -> str:
    """A file's name, and perhaps one of its tests'.

    Raises:
        ArgumentTypeError: there is no such file.
    """
    if word.partition("::")[0] not in named_tests():
        raise argparse.ArgumentTypeError(f"no such file; there are {', '.join(named_tests())}")
    return word


if __name__ == "__main__":
    sys.exit(main())

"""The smoke tests of `make gpu-check`, file by file: what passed is not run again."""

import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.gpu.cases import Case, FailedError, run_cases
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.scale import Scale
from scripts.gpu_check import SKIPPED

from tandem.bench.records import BenchRow

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.py"
_LAST_LINES = 15


def measure_check(names: Sequence[str], scale: Scale, limit: Deadline, found: Findings) -> None:
    """Each file passes, or the part fails, with the last lines of what it printed.

    Args:
        names: of files, in order.

    Raises:
        FailedError: tests failed, or took too long.
        UnfinishedError: there is no time for another file.
    """
    del scale
    cases: dict[str, Case] = {name: partial(_check, name, limit, found) for name in names}
    run_cases(cases, limit, found)


def _check(name: str, limit: Deadline, found: Findings, share: Deadline) -> None:
    """Takes what the part has, not a share of it: files differ, and kernels are compiled once."""
    del share
    command = [
        sys.executable,
        "-u",
        str(_SCRIPT),
        "--seconds",
        f"{max(1.0, limit.left_s):.0f}",
        name,
    ]
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # at once: a part that is ended leaves its log
            print(line, end="", file=sys.stderr, flush=True)
            lines.append(line.rstrip("\n"))
    told = [line for line in lines if line]
    if process.returncode == SKIPPED:
        found.note(f"{name}: all tests were skipped: {told[0] if told else ''}")
        return
    if process.returncode:
        raise FailedError("\n".join(told[-_LAST_LINES:]))
    found.add(BenchRow("smoke tests", name, "passed", 1.0, "", 1.0))
    found.note(f"{name}: {told[-1]}")

"""The smoke tests of `make gpu-check`, which also compile the CPU kernels for this Python."""

import subprocess
import sys
from pathlib import Path

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.scale import Scale

from tandem.bench.records import BenchRow

_SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "gpu_check.py"
_LAST_LINES = 30


def measure_check(scale: Scale, limit: Deadline, found: Findings) -> None:
    """Pass or fail, with the last lines of what they print."""
    del scale, limit
    lines: list[str] = []
    with subprocess.Popen(
        [sys.executable, "-u", str(_SCRIPT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # at once: a part that is ended leaves its log
            print(line, end="", file=sys.stderr, flush=True)
            lines.append(line.rstrip("\n"))
    passed = float(process.returncode == 0)
    found.add(BenchRow("smoke tests", "scripts/gpu_check.py", "passed", passed, "", 1.0))
    for line in lines[-_LAST_LINES:]:
        found.note(line)

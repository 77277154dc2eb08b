"""A job's memory does not grow with its input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import environment

NUM_LINES = 40_000
MAX_GROWTH_BYTES_PER_LINE = 16
SMALL_CACHE_KIB = 256

READ_PROGRAM = """
import json, sys
from pathlib import Path
import psutil
from tests.fakes.answerer import request_line
from tandem.jobs.input_file import InputFile
from tandem.jobs.lines import Place
from tandem.spec.progress import no_progress

path, num_lines = Path(sys.argv[1]) / "in.jsonl", int(sys.argv[2])
process, rss_bytes = psutil.Process(), []
block = request_line("a line like any other") * 1000
with path.open("wb") as file:
    for _ in range(num_lines // 1000):
        file.write(block)
file = InputFile(path, 1 << 20)
assert file.scan(no_progress).num_lines == num_lines
for number, line in enumerate(file.lines(Place()), 1):
    assert line.data
    if number % (num_lines // 10) == 0:
        rss_bytes.append(process.memory_info().rss)
print(json.dumps({"rss_bytes": rss_bytes}))
"""


def resident_sets(*command: str) -> list[int]:
    """Of a process, after each tenth of the lines."""
    done = subprocess.run(
        [sys.executable, *command],
        env={**environment(), "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    rss_bytes = json.loads(done.stdout)["rss_bytes"]
    assert len(rss_bytes) == 10
    return rss_bytes


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    """From three tenths of the lines on. SQLite's cache, which grows to 8 MiB in a job of some
    hundred thousand lines, is made so small here that it is full by then.
    """
    program = ("-m", "tests.fakes.job_memory", str(tmp_path), str(NUM_LINES), str(SMALL_CACHE_KIB))
    rss_bytes = resident_sets(*program)
    num_lines = NUM_LINES - 3 * NUM_LINES // 10
    assert max(rss_bytes[3:]) - rss_bytes[2] <= MAX_GROWTH_BYTES_PER_LINE * num_lines, rss_bytes


@pytest.mark.slow
def test_a_million_lines_are_read_in_the_memory_of_few(tmp_path: Path) -> None:
    """108 MB of input, with the first tenth's resident set to the end."""
    rss_bytes = resident_sets("-c", READ_PROGRAM, str(tmp_path), "1000000")
    assert max(rss_bytes) - rss_bytes[0] < 1 << 20, rss_bytes

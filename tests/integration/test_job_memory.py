"""A job's memory does not grow with its input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.pages import environment

NUM_LINES = 40_000
MAX_GROWTH_BYTES = 4 << 20

PROGRAM = """
import asyncio, json, sys, time
from pathlib import Path
import psutil
from tests.fakes.answerer import ScriptedAnswerer, write_requests
from tandem.jobs.input_file import InputFile
from tandem.jobs.record import open_record
from tandem.jobs.runner import JobRunner
from tandem.jobs.window import Window
from tandem.spec.progress import no_progress

folder, num_lines = Path(sys.argv[1]), int(sys.argv[2])
write_requests(folder / "in.jsonl", (f"request-{n}" for n in range(num_lines)))
process, rss_bytes, num_started = psutil.Process(), [], 0

async def think(request):
    global num_started
    num_started += 1
    if num_started % (num_lines // 10) == 0:
        rss_bytes.append(process.memory_info().rss)
    # The first line is done last, so that the mark stays where it is to the end.
    while request.number == 1 and num_started < num_lines:
        await asyncio.sleep(0.001)

async def main():
    file = InputFile(folder / "in.jsonl", 1 << 20)
    identity = {"input": file.scan(no_progress).digest}
    with open_record(folder / "out.jsonl", identity, lambda: "0" * 16, time.monotonic) as record:
        answerer = ScriptedAnswerer(think)
        answerer.started = type("Nothing", (), {"append": lambda self, number: None})()
        lines = file.lines(record.mark)
        assert await JobRunner(record, lines, answerer, Window(128, 10**9), lambda: None).run()
        assert record.counts.num_ok == num_lines

begun_s = time.perf_counter()
asyncio.run(main())
print(json.dumps({"rss_bytes": rss_bytes, "elapsed_s": time.perf_counter() - begun_s}))
"""

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


def resident_sets(program: str, folder: Path, num_lines: int) -> list[int]:
    """Of a process, after each tenth of the lines."""
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(num_lines)],
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
    """From a fifth of the lines on: what grows with the first ones are caches of a fixed size."""
    rss_bytes = resident_sets(PROGRAM, tmp_path, NUM_LINES)
    assert max(rss_bytes[2:]) - rss_bytes[1] < MAX_GROWTH_BYTES, rss_bytes


@pytest.mark.slow
def test_a_million_lines_are_read_in_the_memory_of_few(tmp_path: Path) -> None:
    """108 MB of input, with the first tenth's resident set to the end."""
    rss_bytes = resident_sets(READ_PROGRAM, tmp_path, 1_000_000)
    assert max(rss_bytes) - rss_bytes[0] < 1 << 20, rss_bytes

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


@pytest.mark.slow
def test_memory_is_flat(tmp_path: Path) -> None:
    """From a fifth of the lines on: what grows with the first ones are caches of a fixed size."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path), str(NUM_LINES)],
        env={**environment(), "PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    rss_bytes = json.loads(done.stdout)["rss_bytes"]
    assert len(rss_bytes) == 10
    assert max(rss_bytes[2:]) - rss_bytes[1] < MAX_GROWTH_BYTES, rss_bytes

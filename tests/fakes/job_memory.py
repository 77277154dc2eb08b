"""Runs a job over many lines, with a scripted engine, and prints the resident set as it goes on.

Usage: python -m tests.fakes.job_memory FOLDER NUM_LINES [CACHE_KIB]. The last one is SQLite's.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

import psutil
from tests.fakes.answerer import ScriptedAnswerer, request_line

from tandem.jobs import journal
from tandem.jobs.input_file import InputFile
from tandem.jobs.record import open_record
from tandem.jobs.request_line import RequestLine
from tandem.jobs.runner import JobRunner
from tandem.jobs.window import Window
from tandem.spec.progress import no_progress

_SAMPLES = 10


class _Nothing(list[int]):
    """A list of what was started that keeps nothing."""

    def append(self, number: int, /) -> None:
        del number


class Sampler:
    """Samples this process's resident set after each tenth of the lines."""

    def __init__(self, num_lines: int) -> None:
        self.rss_bytes: list[int] = []
        self._num_lines = num_lines
        self._num_started = 0
        self._process = psutil.Process()

    async def think(self, request: RequestLine) -> None:
        """The first line is done last, so that the journal's mark stays where it is to the end."""
        self._num_started += 1
        if self._num_started % (self._num_lines // _SAMPLES) == 0:
            self.rss_bytes.append(self._process.memory_info().rss)
        while request.number == 1 and self._num_started < self._num_lines:
            await asyncio.sleep(0.01)


async def run(folder: Path, num_lines: int) -> list[int]:
    """Resident sets, after each tenth."""
    with (folder / "in.jsonl").open("wb") as lines:
        lines.writelines(request_line(f"request-{number}") for number in range(num_lines))
    file, sampler = InputFile(folder / "in.jsonl", 1 << 20), Sampler(num_lines)
    identity = {"input": file.scan(no_progress).digest}
    with open_record(folder / "out.jsonl", identity, lambda: "0" * 16, time.monotonic) as record:
        answerer = ScriptedAnswerer(sampler.think)
        answerer.started = _Nothing()
        lines = file.lines(record.mark)
        assert await JobRunner(record, lines, answerer, Window(128, 10**9), lambda: None).run()
        assert record.counts.num_ok == num_lines
    return sampler.rss_bytes


def main(folder: Path, num_lines: int) -> None:
    """Print resident sets and the time taken."""
    begun_s = time.perf_counter()
    rss_bytes = asyncio.run(run(folder, num_lines))
    print(json.dumps({"rss_bytes": rss_bytes, "elapsed_s": time.perf_counter() - begun_s}))


if __name__ == "__main__":
    if len(sys.argv) > 3:
        journal._CACHE_KIB = int(sys.argv[3])
    main(Path(sys.argv[1]), int(sys.argv[2]))

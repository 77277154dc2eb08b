"""Runs jobs in processes that can be killed, over a scripted engine.

As a program it reads orders, JSON lists of `run_job`'s arguments, and forks for each: so the
imports are paid for once. It prints `ready`; then for each order the child's process id, `open`
once the job's files are open, and in the end the child's exit status.
"""

import asyncio
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

from tests.fakes.answerer import ScriptedAnswerer

from tandem.jobs.input_file import InputFile
from tandem.jobs.record import open_record
from tandem.jobs.request_line import RequestLine
from tandem.jobs.runner import JobRunner
from tandem.jobs.window import Window
from tandem.spec.progress import no_progress

MAX_SEQUENCES = 8
_MAX_LATENCY_S = 0.004
_COMMIT_INTERVAL_S = 0.02


def run_job(input_file: str, output_file: str, engine_log: str, seed: int) -> None:
    """Run a job to its end; the engine notes in `engine_log` each line that it has answered."""
    rng = random.Random(seed)
    log = os.open(engine_log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def think(request: RequestLine) -> None:
        await asyncio.sleep(rng.uniform(0, _MAX_LATENCY_S))
        os.write(log, b"%d\n" % request.number)

    asyncio.run(_run(Path(input_file), Path(output_file), ScriptedAnswerer(think)))


async def _run(input_file: Path, output_file: Path, answerer: Any) -> None:
    file = InputFile(input_file, 1000)
    facts = file.scan(no_progress)
    identity = {"input": facts.digest}
    with open_record(output_file, identity, lambda: os.urandom(8).hex(), time.monotonic) as record:
        _say("open")
        runner = JobRunner(
            record,
            file.lines(record.mark),
            answerer,
            Window(MAX_SEQUENCES, 10**9),
            lambda: None,
            _COMMIT_INTERVAL_S,
        )
        assert await runner.run()


def _obey() -> None:
    _say("ready")
    for order in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _say(os.getpid())
            run_job(*json.loads(order))
            return
        _say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _say(news: object) -> None:
    """A line at once, since parent and child share the output."""
    os.write(sys.stdout.fileno(), f"{news}\n".encode())


if __name__ == "__main__":
    _obey()

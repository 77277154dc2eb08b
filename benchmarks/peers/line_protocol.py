"""Engines in processes of their own, asked in lines of JSON: they take turns and share no threads.

A worker says `{}` when it has loaded its model. Then each line in gives one line out:
`{"prompts": [[...]], "new_tokens": n}` the fields of `Generated`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tandem.bench.generation import Generated, Generator, Prompts

_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields of /proc/PID/stat after the name: user and system time of all threads.
_USER_TIME, _SYSTEM_TIME = 11, 12


class WorkerError(RuntimeError):
    """A worker ended before it answered; its own words are on standard error."""


class Worker:
    """The near end: starts a process, and generates in it."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            text=True,
        )

    def wait_until_loaded(self) -> None:
        """Return when the model can be asked.

        Raises:
            WorkerError: the process ended instead.
        """
        self._read()

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`.

        Raises:
            WorkerError: the process ended instead.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompts": prompts, "new_tokens": new_tokens}) + "\n")
        self._process.stdin.flush()
        fields = self._read()
        return Generated(
            tuple(map(tuple, fields["token_ids"])), fields["first_s"], fields["decode_s"]
        )

    def peak_rss_bytes(self) -> int:
        """Highest resident set so far."""
        status = self._proc("status").splitlines()
        kilobytes = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024

    def processor_s(self) -> float:
        """Processor time of all threads so far."""
        fields = self._proc("stat").rpartition(")")[2].split()
        return (int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])) / _CLOCK_TICKS_PER_S

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.name} ended with status {self._process.wait()}")
        return json.loads(line)

    def _proc(self, file: str) -> str:
        return Path(f"/proc/{self._process.pid}/{file}").read_text()


def serve(load: Callable[[], Generator]) -> None:
    """The far end: answer lines of standard input until it ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Libraries print what they like: away from the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    generator = load()
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        run = generator.generate(question["prompts"], question["new_tokens"])
        print(json.dumps(asdict(run)), file=answers, flush=True)

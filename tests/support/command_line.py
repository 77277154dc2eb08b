"""The command line in this process: no start of Python, and no import of torch, for each command.

What is of a process itself (signals, imports, what is left at its end) needs one of its own.
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

from tandem.cli.main import main


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command did."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*args: str) -> Ran:
    """Run one command to its end."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main(list(args))
    return Ran(status, out.getvalue(), err.getvalue())

"""`tandem plan` into a pipe whose reader has left: files that were asked for are written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tandem.cli.main import FAULT_STATUS
from tandem.plan.plan_file import read_plan

ONLINE = "plan", "opt-1.3b", "--accelerator", "a10g", "--prompt", "64", "--requests", "8"
OFFLINE = "plan", "opt-6.7b", "--accelerator", "t4", "--offline", "--requests", "40"


def run_unread(*args: str) -> int:
    """The exit status of a command of whose output nobody reads a line; a process of its own, since
    Typer exchanges `sys.stdout` then.
    """
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as out:
        ran = subprocess.run(
            [sys.executable, "-m", "tandem", *args],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert ran.stderr == ""
    return ran.returncode


@pytest.mark.parametrize("asked", [ONLINE, OFFLINE], ids=["online", "offline"])
def test_the_plan_is_written(tmp_path: Path, asked: tuple[str, ...]) -> None:
    path = tmp_path / "plan.json"
    assert run_unread(*asked, "--output", str(path)) == FAULT_STATUS
    assert read_plan(path).plan.to_object()


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    assert run_unread(*ONLINE, "--plot", str(path)) == FAULT_STATUS
    assert path.read_bytes().startswith(b"\x89PNG")

"""What ends a command although nobody foresaw it: one line with cause and remedy, no traceback."""

import errno
import os
from typing import Any

import pytest
import torch
from tests.unit.cli.conftest import Commands

from tandem import compose
from tandem.cli import main as main_module
from tandem.spec.config import EngineConfig


def system_error(number: int, path: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (
            system_error(errno.EACCES, "/data/x"),
            2,
            "cannot use /data/x: Permission denied; change its permissions, or name another",
        ),
        (system_error(errno.ENOENT, "/x"), 2, "No such file or directory; check the path"),
        (system_error(errno.EIO, "/x"), 2, "Input/output error; check the disk"),
        (
            system_error(errno.EMFILE),
            1,
            "the system refused: Too many open files; raise the limit on open files (ulimit -n)",
        ),
        (system_error(errno.ENOSPC, "/x"), 2, "cannot use /x: No space left on device; free some"),
        (OSError("odd"), 1, "the system refused: odd; mend that and try again"),
        (MemoryError(), 1, "no host memory is left; lower --cpu-memory"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_the_system_s_refusals_are_one_line(
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    status: int,
    message: str,
) -> None:
    def app(*args: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(main_module, "build_app", lambda _: app)
    ran = commands.run("generate")
    assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1)
    assert ran.err.startswith("tandem: error: ")
    assert message in ran.err


@pytest.mark.parametrize(
    ("error", "flag"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB."), "--gpu-memory"),
        (RuntimeError("CUDA error: out of memory\nKernel errors may come late"), "--gpu-memory"),
        (MemoryError(), "--cpu-memory"),
        (system_error(errno.ENOMEM), "--cpu-memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "--cpu-memory"),
    ],
    ids=["CUDA", "driver", "Python", "the system", "torch"],
)
def test_memory_that_runs_out_while_loading_is_one_line_with_a_remedy(
    commands: Commands, monkeypatch: pytest.MonkeyPatch, error: Exception, flag: str
) -> None:
    monkeypatch.undo()  # the real composition, over a build that fails

    def build(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr("tandem.engine.building.build.build_engine_core", build)
    ran = commands.run("generate", "--prompt", "a")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "memory ran out while the engine was built" in ran.err
    assert f"lower {flag}" in ran.err


def test_another_fault_while_loading_is_not_said_to_be_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(*args: Any, **options: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("tandem.engine.building.build.build_engine_core", build)
    with pytest.raises(RuntimeError, match="something else"):
        compose.build_engine(EngineConfig(model="m"))

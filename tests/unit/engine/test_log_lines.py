"""Warnings while a command runs."""

import logging

import pytest

from tandem.cli.main import main
from tandem.engine.log_lines import log_lines

_LOG = logging.getLogger("tandem.some.module")


def test_warnings_and_errors_look_as_a_command_s_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines():
        _LOG.info("nobody asked")
        _LOG.warning("the disk %s is full", "d")
        _LOG.error("a fault")
    assert capsys.readouterr().err == (
        "tandem: warning: the disk d is full\ntandem: error: a fault\n"
    )


def test_a_fault_s_traceback_follows_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log_lines():
        try:
            raise ValueError("7")
        except ValueError:
            _LOG.exception("it failed")
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[-1]) == ("tandem: error: it failed", "ValueError: 7")


def test_nothing_is_left_behind() -> None:
    before = list(logging.getLogger("tandem").handlers)
    assert main(["generate", "--top-p", "7"]) == 2
    assert logging.getLogger("tandem").handlers == before

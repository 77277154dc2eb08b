"""The `tandem` lines of all pages: their flags exist, and the cheap ones run."""

import functools
import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, README, ROOT, commands
from tests.support.command_line import run_here

LINES = [(page, line) for page in PAGES for line in commands(page, "tandem")]
IDS = [f"{page.relative_to(ROOT)}: {' '.join(line[1:])}" for page, line in LINES]
INDENTED_COMMAND = re.compile(r"^(?: {4}|\t)\$? ?tandem ", re.MULTILINE)


@functools.cache
def help_of(*command: str) -> str:
    ran = run_here(*command, "--help")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def uses_the_demo_model(line: list[str]) -> bool:
    return line[1] == "generate" and (line[2] == "demo" or line[2].startswith("--"))


@pytest.mark.parametrize("line", [line for _, line in LINES], ids=IDS)
def test_every_documented_flag_exists(line: list[str]) -> None:
    first_flag = next((i for i, word in enumerate(line) if word.startswith("--")), len(line))
    # With its subcommand, if it has any, and without its model or paths, which --help ignores.
    help_text = help_of(*line[1:first_flag])
    for word in line[first_flag:]:
        if word.startswith("--"):
            assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", help_text), word


@pytest.mark.parametrize(
    "line",
    [line for _, line in LINES if uses_the_demo_model(line)],
    ids=[name for (_, line), name in zip(LINES, IDS, strict=True) if uses_the_demo_model(line)],
)
def test_generating_with_the_demo_model_prints_text(
    line: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # where it may write files
    done = run_here(*line[1:])
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 3


def test_pages_beside_the_readme_are_looked_at() -> None:
    assert {page for page, line in LINES if uses_the_demo_model(line)} > {README}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_command_hides_outside_a_console_block(page: Path) -> None:
    assert INDENTED_COMMAND.findall(page.read_text("utf-8")) == []

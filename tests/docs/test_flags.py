"""The page on flags names what `tandem serve` takes, with all values of those that have a few."""

import re
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from tests.docs.pages import ROOT

from tandem.cli.main import build_app
from tandem.plan.strategy_names import STRATEGIES
from tandem.spec.config import EngineConfig

PAGE = (ROOT / "docs" / "flags.md").read_text("utf-8")
FIRST_CELLS = re.findall(r"^\| (.*?) (?<!\\)\| ", PAGE, re.MULTILINE)
NAMED = sorted({flag for cell in FIRST_CELLS for flag in re.findall(r"--[\w-]+", cell)})
# in the page as `--flag one|two`
VALUES = {
    name: tuple(values.split("\\|"))
    for cell in FIRST_CELLS
    for name, values in re.findall(r"`--([\w-]+) ([\w\-|\\]+)`", cell)
}
CHOICES = {
    name.replace("_", "-"): get_args(kind)
    for name, kind in get_type_hints(EngineConfig).items()
    if get_origin(kind) is Literal
} | {"strategy": STRATEGIES}


def test_every_flag_is_taken() -> None:
    command = typer.main.get_command(build_app())
    taken = {option for each in command.commands["serve"].params for option in each.opts}  # pyright: ignore[reportAttributeAccessIssue]
    assert len(NAMED) > 25
    assert [flag for flag in NAMED if flag not in taken] == []


@pytest.mark.parametrize("name", sorted(CHOICES))
def test_every_value_is_named(name: str) -> None:
    assert sorted(VALUES[name]) == sorted(CHOICES[name])

"""Dataclasses of options: the command line shows their fields, the command gets them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tandem.cli.flags import was_given
from tandem.cli.option_groups import grouped


@dataclass(frozen=True, slots=True)
class Size:
    """One required, one not."""

    width: Annotated[int, typer.Option(help="How wide.", min=1)]
    height: Annotated[int, typer.Option(help="How high.")] = 3


@dataclass(frozen=True, slots=True)
class Paint:
    """A flag of another name than the field."""

    is_red: Annotated[bool, typer.Option("--red", help="In red.")] = False


@pytest.fixture
def run() -> Callable[..., str]:
    app = typer.Typer(add_completion=False)

    @app.command()
    @grouped
    def draw(
        context: typer.Context,
        *,
        size: Size,
        name: Annotated[str, typer.Argument(metavar="NAME")],
        paint: Paint,
        depth: int = 1,
    ) -> None:
        """Draw it."""
        print(name, size, paint, depth, [f for f in ("width", "height") if was_given(context, f)])

    def invoke(*args: str) -> str:
        result = CliRunner().invoke(app, list(args))
        return result.output if result.exit_code == 0 else f"{result.exit_code} {result.output}"

    return invoke


def test_fields_are_given_as_options(run: Callable[..., str]) -> None:
    assert run("it", "--width", "2", "--red") == (
        "it Size(width=2, height=3) Paint(is_red=True) 1 ['width']\n"
    )


def test_fields_are_checked_as_parameters_are(run: Callable[..., str]) -> None:
    assert run("it").startswith("2 ")
    assert "--width" in run("it")
    assert run("it", "--width", "0").startswith("2 ")


def test_help_lists_them_in_the_parameters_places(run: Callable[..., str]) -> None:
    text = run("--help")
    found = [text.index(flag) for flag in ("--width", "--height", "--red", "--depth")]
    assert found == sorted(found)
    assert "Draw it." in text
    assert "[default: 3]" in text

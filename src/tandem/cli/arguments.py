"""Arguments that several commands share, and what is made of them."""

from collections.abc import Sequence
from typing import Annotated

import typer

from tandem.cli.flags import env_twin
from tandem.spec.errors import ConfigError

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="Model directory, Hugging Face id in the local cache or its name, or demo.",
        envvar=env_twin("model"),
        metavar="MODEL",
    ),
]


def served_names(given: Sequence[str] | None, model: str) -> tuple[str, ...]:
    """The names by which requests may ask for `model`: those given, or its own.

    Raises:
        ConfigError: one is empty.
    """
    if not all(given or ()):
        raise ConfigError(
            "a served model name is empty; leave --served-model-name out instead",
            param="served_model_name",
        )
    return tuple(given or [model])

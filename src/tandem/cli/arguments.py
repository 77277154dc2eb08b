"""Arguments that several commands share."""

from typing import Annotated

import typer

from tandem.cli.flags import env_twin

ModelArgument = Annotated[
    str,
    typer.Argument(
        help="Model directory, Hugging Face id in the local cache, or demo.",
        envvar=env_twin("model"),
        metavar="MODEL",
    ),
]

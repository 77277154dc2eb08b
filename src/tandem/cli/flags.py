"""Command-line flags that fill a dataclass, declared once and used by several commands."""

import functools
import inspect
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of the command line.

    Attributes:
        name: the dataclass's field and, with dashes, the option; TANDEM_<NAME> is its twin.
        kind: type to read it as.
        default: value if neither the option nor its twin is given.
        help: one line.
        metavar: what stands for the value in the help.
        synonym: another spelling of the option.
        convert: applied to the value before it reaches the dataclass.
    """

    name: str
    kind: Any
    default: Any
    help: str
    metavar: str | None = None
    convert: Callable[[Any], Any] | None = None
    synonym: str | None = None

    def parameter(self) -> inspect.Parameter:
        """This flag as a parameter that typer understands."""
        option = "--" + self.name.replace("_", "-")
        if self.kind == list[str] | None:
            info: Any = list_option(self.name, self.help, self.metavar)
            return inspect.Parameter(
                self.name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[self.kind, info]
            )
        names = f"{option}/--no-{self.name.replace('_', '-')}" if self.kind is bool else option
        spellings = (names,) if self.synonym is None else (names, self.synonym)
        info = typer.Option(
            *spellings, envvar=env_twin(self.name), help=self.help, metavar=self.metavar
        )
        return inspect.Parameter(
            self.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.kind, info],
        )

    def value(self, given: Any) -> Any:
        """What the dataclass gets for what was given."""
        return given if self.convert is None else self.convert(given)


_CONTEXT = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)


def env_twin(name: str) -> str:
    """The environment variable that stands for an option."""
    return "TANDEM_" + name.upper()


def list_option(name: str, help: str, metavar: str | None = None) -> Any:
    """A repeatable option; it must be annotated without a default.

    Its twin is read here, since the library would split it at blanks, which values may hold.
    """
    return typer.Option(
        "--" + name.replace("_", "-"),
        help=f"{help}  [env var: {env_twin(name)}, one or a JSON list]",
        metavar=metavar,
        default_factory=functools.partial(_read_twins, env_twin(name)),
        show_default=False,
    )


def _read_twins(variable: str) -> list[str] | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        values = json.loads(text)
    except ValueError:
        return [text]
    is_list = isinstance(values, list) and all(isinstance(value, str) for value in values)
    return values if is_list else [text]


def was_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line or in its twin."""
    source = context.get_parameter_source(name)
    return source is not None and source.name in ("COMMANDLINE", "ENVIRONMENT")


def fill(
    parameter: str, build: Callable[..., object], flags: Sequence[Flag], *, given_only: bool = False
) -> Any:
    """A decorator: the command's argument `parameter` is `build(**flags)`.

    The command line shows the flags in the parameter's place.

    Args:
        given_only: flags that the user has not given are left to the defaults of `build`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        takes_context = _CONTEXT.name in signature.parameters

        @functools.wraps(command)
        def run(**given: Any) -> None:
            context = given[_CONTEXT.name] if takes_context else given.pop(_CONTEXT.name)
            values = {flag.name: flag.value(given.pop(flag.name)) for flag in flags}
            if given_only:
                values = {name: v for name, v in values.items() if was_given(context, name)}
            command(**given, **{parameter: functools.partial(build, **values)})

        kept = [
            p for p in signature.parameters.values() if p.name not in (parameter, _CONTEXT.name)
        ]
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in [_CONTEXT, *kept, *(flag.parameter() for flag in flags)]
        ]
        run.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate

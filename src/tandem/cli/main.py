"""Entry point of the `tandem` command: which commands there are, and how errors look."""

import contextlib
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Annotated

import typer

import tandem
from tandem.cli.system_errors import MEMORY_REMEDY, NO_ROOM, describe
from tandem.devices.host_threads import wait_calmly
from tandem.spec.errors import TandemError

FAULT_STATUS, USAGE_STATUS = 1, 2
INTERRUPTED_STATUS = 130
_COMMANDS = {
    "generate": "generate",
    "chat": "chat",
    "serve": "serve",
    "batch": "batch",
    "plan": "plan",
    "profile": "profile",
    "simulate": "simulate",
    "demo": "demo",
    "bench": "bench",
    "collect-env": "collect_env",
}
"""By name, the module of `tandem.cli` that has it, and its function there."""

_ENGINE_COMMANDS = frozenset(("generate", "chat", "serve", "batch", "demo", "bench"))

# Typer's base of usage errors, whether it brings its own copy of click or not.
_UsageError: type[Exception] = next(
    c
    for c in typer.BadParameter.__mro__
    if c.__name__ == "ClickException" and issubclass(c, Exception)
)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status. Errors of the user's, or of the system's, are one
    line.
    """
    args = sys.argv[1:] if argv is None else argv
    wait_calmly(os.environ)
    try:
        with _log_lines(args):
            status = build_app(args)(args or ["--help"], prog_name="tandem", standalone_mode=False)
        sys.stdout.flush()
    except TandemError as error:
        return _fail(error.message)
    except _UsageError as error:
        return _fail(error.format_message())  # pyright: ignore[reportAttributeAccessIssue]
    except MemoryError:
        return _fail(f"no host memory is left; {MEMORY_REMEDY}", FAULT_STATUS)
    except OSError as error:
        return _fail_of_system(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED_STATUS
    return status or 0


def _log_lines(args: Sequence[str]) -> AbstractContextManager[None]:
    """What engines warn of, where one may run: the others need not import what it takes."""
    if not _ENGINE_COMMANDS.intersection(args[:1]) or "--help" in args:
        return contextlib.nullcontext()
    from tandem.engine.log_lines import log_lines

    return log_lines()


def build_app(args: Sequence[str] = ()) -> typer.Typer:
    """The command line; if `args` begin with a command, with that one alone: it needs no other's
    modules and options.
    """
    app = typer.Typer(
        help="LLM inference for models and contexts that do not fit the GPU.",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(_root)
    for name in args[:1] if args and args[0] in _COMMANDS else _COMMANDS:
        module = import_module(f"tandem.cli.{_COMMANDS[name]}")
        if name == "bench":
            app.add_typer(module.bench_app(), name=name)
        else:
            app.command()(getattr(module, _COMMANDS[name]))
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tandem {tandem.__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    pass


def _discard_output() -> None:
    """Send what is left to write nowhere, or the interpreter's end would fail on it again."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _fail_of_system(error: OSError) -> int:
    """A file that cannot be used is the user's to mend; all else is not."""
    if isinstance(error, BrokenPipeError):  # who reads the output has left
        _discard_output()
        return FAULT_STATUS
    if error.errno in NO_ROOM and error.filename is None:
        _discard_output()
        return _fail(f"cannot write the output: {describe(error).partition(': ')[2]}")
    return _fail(describe(error), FAULT_STATUS if error.filename is None else USAGE_STATUS)


def _fail(message: str, status: int = USAGE_STATUS) -> int:
    line = " ".join(message.split())
    print(f"tandem: error: {line}".encode("utf-8", "backslashreplace").decode(), file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())

"""Talking to a person: progress on standard error, and text that cannot break the terminal."""

import contextlib
import sys
from collections.abc import Iterator, Sequence

from tandem.spec.progress import Progress, no_progress


@contextlib.contextmanager
def load_progress(stream_is_terminal: bool | None = None) -> Iterator[Progress]:
    """A progress callback that draws a bar on standard error, if that is a terminal."""
    shown = sys.stderr.isatty() if stream_is_terminal is None else stream_is_terminal
    if not shown:
        yield no_progress
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, completed=done, total=total or None)

        yield report


def write(text: str) -> None:
    """Print a piece of text at once; what the terminal's encoding lacks appears as an escape."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
    sys.stdout.flush()


def tell_load(description: Sequence[str]) -> None:
    """Say on standard error what was loaded where. Notes are decisions that the user did not ask
    for: they are said even if nobody watches, the rest is not.
    """
    for line in description:
        if sys.stderr.isatty() or line.startswith("note: "):
            tell(printable(line))


def printable(line: str) -> str:
    """A line that may hold text from files, without what would steer a terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)


def tell_notes(notes: Sequence[str]) -> None:
    """Say on standard error what was decided, or was asked for and will not happen, also if nobody
    watches.
    """
    for line in notes:
        tell(f"note: {printable(line)}")


def tell(text: str) -> None:
    """Say something on standard error, also if nobody watches."""
    print(f"tandem: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Tell a person something that is not part of the result; silent if nobody watches."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)

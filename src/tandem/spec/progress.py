"""How long work reports on itself."""

from collections.abc import Callable

# (what is being done, units done, units in total); called at any rate, from the working thread.
Progress = Callable[[str, int, int], None]


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress reports."""

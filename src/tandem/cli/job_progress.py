"""Shows how far a job is, on standard error."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tandem.cli.terminal import tell

if TYPE_CHECKING:
    from tandem.jobs.counts import Counts
    from tandem.jobs.pace import Status

Report = Callable[["Status"], None]

_LINE_INTERVAL_S = 60.0


@contextlib.contextmanager
def job_progress(
    stream_is_terminal: bool | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Report]:
    """A callback that draws a bar on a terminal, and elsewhere prints a line a minute.

    Elsewhere includes terminals that cannot move their cursor (`TERM=dumb`).
    """
    shown = sys.stderr.isatty() if stream_is_terminal is None else stream_is_terminal
    if not shown or os.environ.get("TERM", "").lower() in ("dumb", "unknown"):
        yield _print_lines(clock)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def report(status: "Status") -> None:
            text = describe_status(status)
            total, done = status.num_lines, status.counts.num_done
            bar.update(task, description=text, completed=done, total=total)

        yield report


def _print_lines(clock: Callable[[], float]) -> Report:
    printed_s = clock()

    def report(status: "Status") -> None:
        nonlocal printed_s
        if clock() - printed_s >= _LINE_INTERVAL_S:
            printed_s = clock()
            tell(describe_status(status))

    return report


def describe_status(status: "Status") -> str:
    """A status in one line."""
    counts = status.counts
    parts = [f"{counts.num_done:,} of {status.num_lines:,} lines"]
    if counts.num_failed:
        parts.append(f"{counts.num_failed:,} failed")
    parts.append(f"{status.output_tokens_per_s:,.1f} tokens/s")
    if status.remaining_s is not None:
        parts.append(f"{_duration(status.remaining_s)} left")
    return ", ".join(parts)


def describe_counts(counts: "Counts") -> str:
    """What a job did, in one line."""
    rate = counts.num_output_tokens / counts.elapsed_s if counts.elapsed_s else 0.0
    return (
        f"{counts.num_ok:,} answered, {counts.num_failed:,} failed; "
        f"{counts.num_prompt_tokens:,} prompt tokens, {counts.num_output_tokens:,} output tokens, "
        f"{rate:,.1f} tokens/s, {_duration(counts.elapsed_s)}"
    )


def _duration(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"

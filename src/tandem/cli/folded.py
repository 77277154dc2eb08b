"""Long lines in shorter ones, as wide as what they are read on."""

import shutil
import sys
from collections.abc import Iterable, Iterator

MOST_WIDTH = 159
_LEAST_WIDTH = 80
"""Bars are nearly as wide: what a narrower terminal breaks is not mended by folding."""
_INDENT = "    "
_COMMAND = "tandem "


def print_folded(lines: Iterable[str]) -> None:
    """Print lines for a person, at once."""
    print("\n".join(folded(lines, shown_width())), flush=True)


def shown_width() -> int:
    """In characters: of the terminal that standard output is; of files and pipes, the most."""
    if not sys.stdout.isatty():
        return MOST_WIDTH
    columns = shutil.get_terminal_size((MOST_WIDTH, 24)).columns
    return min(MOST_WIDTH, max(_LEAST_WIDTH, columns))


def folded(lines: Iterable[str], width: int = MOST_WIDTH) -> Iterator[str]:
    """Lines of more than `width` characters broken after a comma, or between words if no comma
    stands late enough; the rest of each is indented below it. Columns of a table, commands, which
    are there to be copied, and what has nowhere to be broken stay as they are.
    """
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())] + _INDENT
        while len(line) > width and not line.lstrip().startswith(_COMMAND):
            end = _break(line, len(indent), width)
            if end is None:
                break
            yield line[:end].rstrip()
            line = indent + line[end:].lstrip()
        yield line


def _break(line: str, first: int, width: int) -> int | None:
    """Where the rest begins; only what is behind the last column of a table may be broken."""
    prose = max(first, line.rfind("  ", first) + 1)
    comma = line.rfind(", ", prose, width)
    if comma >= width // 2:
        return comma + 1
    space = line.rfind(" ", prose + 1, width + 1)
    return None if space < 0 else space

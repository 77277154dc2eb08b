"""Long lines of prose in shorter ones."""

from collections.abc import Iterable, Iterator

MOST_WIDTH = 159
_INDENT = "    "


def folded(lines: Iterable[str]) -> Iterator[str]:
    """Those of more characters than a wide terminal shows, broken after commas; the rest of each is
    indented below it. What has no comma to break after stays as it is.
    """
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())] + _INDENT
        while len(line) > MOST_WIDTH:
            end = line.rfind(", ", len(indent), MOST_WIDTH)
            if end < 0:
                break
            yield line[: end + 1]
            line = indent + line[end + 2 :]
        yield line

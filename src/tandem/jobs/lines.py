"""Reads a file line by line, in bounded memory, and says where each line lies."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SKIP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Between two lines of a file.

    Attributes:
        number: of the line that begins here, from 1.
        offset: bytes before it.
    """

    number: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line that is not blank.

    Attributes:
        start: where it begins.
        end: where the next one begins.
        data: without its end and without a byte order mark; None if it is too long to be read.
        is_whole: False if the file ends without a newline.
    """

    start: Place
    end: Place
    data: bytes | None
    is_whole: bool = True


def read_lines(file: BinaryIO, max_line_bytes: int, place: Place | None = None) -> Iterator[Line]:
    """The lines from `place` on (the beginning if None), which the file must stand at.

    Args:
        max_line_bytes: longer lines are passed over, and never held in memory.
    """
    start = place or Place()
    while data := file.readline(max_line_bytes + 1):
        size_bytes, is_long = len(data), len(data) > max_line_bytes
        while not data.endswith(b"\n") and (more := file.readline(_SKIP_BYTES)):
            is_long, size_bytes, data = True, size_bytes + len(more), more
        end = Place(start.number + 1, start.offset + size_bytes)
        is_whole = data.endswith(b"\n")
        if start.offset == 0:
            data = data.removeprefix(_BYTE_ORDER_MARK)
        content = data.strip()
        if is_long or content:
            yield Line(start, end, None if is_long else content, is_whole)
        start = end

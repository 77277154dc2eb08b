"""The requests of a job: a regular file that must not change while the job lasts."""

import hashlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tandem.jobs.lines import Line, Place, read_lines
from tandem.spec.errors import ConfigError
from tandem.spec.progress import Progress

_BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class InputFacts:
    """What a job remembers of its input.

    Attributes:
        digest: SHA-256 of its bytes.
        num_lines: lines that are not blank.
    """

    size_bytes: int
    digest: str
    num_lines: int


class InputFile:
    """The input, open.

    Args:
        max_line_bytes: longer lines are not read.

    Raises:
        ConfigError: it is no regular file, or cannot be read.
    """

    def __init__(self, path: Path, max_line_bytes: int) -> None:
        self.path = path
        self._max_line_bytes = max_line_bytes
        if str(path) == "-":
            raise ConfigError(
                "a job cannot read standard input: when it is resumed, it reads its input again; "
                "save it to a file, and name that with --input-file",
                param="input_file",
            )
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise ConfigError(
                f"cannot read --input-file {path}: {error.strerror}; name a readable file",
                param="input_file",
            ) from None
        self._stamp = self._read_stamp()
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            os.close(self._fd)
            raise ConfigError(
                f"--input-file {path} is not a regular file, and a job that is resumed reads its "
                "input again; save it to a file first",
                param="input_file",
            )

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)

    def is_same_file(self, path: Path) -> bool:
        """True if `path` leads to this file."""
        return path.exists() and os.path.samestat(os.fstat(self._fd), path.stat())

    def scan(self, progress: Progress) -> InputFacts:
        """Read it once, from the beginning to the end.

        Raises:
            ConfigError: somebody is changing it, or it cannot be read.
        """
        digest = hashlib.sha256()
        size_bytes = self._stamp[0]
        num_read = 0

        def take(data: memoryview) -> None:
            nonlocal num_read
            digest.update(data)
            num_read += len(data)
            progress("reading the input", num_read, size_bytes)

        num_lines = sum(1 for _ in self._read(Place(), take))
        return InputFacts(size_bytes, digest.hexdigest(), num_lines)

    def lines(self, place: Place) -> Iterator[Line]:
        """Its lines from `place` on.

        Raises:
            ConfigError: while it is read, if somebody changes it, or it cannot be read.
        """
        return self._read(place, lambda data: None)

    def _read(self, place: Place, take: Callable[[memoryview], None]) -> Iterator[Line]:
        raw = _Tapped(self._fd, place.offset, take, self._check_unchanged)
        file = io.BufferedReader(raw, _BUFFER_BYTES)
        try:
            yield from read_lines(file, self._max_line_bytes, place)
        except OSError as error:
            reason = error.strerror or error
            raise ConfigError(
                f"cannot read --input-file {self.path}: {reason}; copy it to another disk, name "
                "that, and the job goes on where it stopped",
                param="input_file",
            ) from error

    def _read_stamp(self) -> tuple[int, int]:
        facts = os.fstat(self._fd)
        return facts.st_size, facts.st_mtime_ns

    def _check_unchanged(self) -> None:
        if self._read_stamp() != self._stamp:
            raise ConfigError(
                f"--input-file {self.path} was changed while the job read it; put the old content "
                "back and run the same command, or begin anew with --restart",
                param="input_file",
            )


class _Tapped(io.RawIOBase):
    """A file that is read from an offset on; what is read passes `take`, and `check` each time."""

    def __init__(
        self, fd: int, offset: int, take: Callable[[memoryview], None], check: Callable[[], None]
    ) -> None:
        super().__init__()
        self._fd, self._offset = fd, offset
        self._take, self._check = take, check

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        num_read = os.preadv(self._fd, [buffer], self._offset)
        self._check()
        self._offset += num_read
        self._take(memoryview(buffer)[:num_read])
        return num_read

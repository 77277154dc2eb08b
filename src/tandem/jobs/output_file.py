"""The results of a job: a file that only grows, line by line, under a lock."""

import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from tandem.jobs.lines import Line, Place, read_lines
from tandem.jobs.storage_error import write_error
from tandem.spec.errors import ConfigError

_MAX_RESULT_BYTES = 1 << 30


class OutputFile:
    """The output, open for this process alone; the lock ends with the process.

    Raises:
        ConfigError: it cannot be written, or another run writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise ConfigError(
                f"cannot write --output-file {path}: {error.strerror}; name a file in a directory "
                "that can be written",
                param="output_file",
            ) from None
        try:
            self._take()
        except ConfigError:
            self.close()
            raise
        self._size_bytes = os.fstat(self._fd).st_size

    def _take(self) -> None:
        if not stat.S_ISREG(os.fstat(self._fd).st_mode):
            raise ConfigError(
                f"--output-file {self.path} is not a regular file, and a job that is resumed reads "
                "its output again; name one",
                param="output_file",
            )
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"another run is writing {self.path}; wait for its end, or name another "
                "--output-file",
                param="output_file",
            ) from None

    @property
    def size_bytes(self) -> int:
        """Bytes of all results in it."""
        return self._size_bytes

    def append(self, data: bytes) -> None:
        """Write a result. It survives the end of this process at once, a power cut after `sync`.

        Raises:
            NoRoomError: there is no room for it. StorageError: it cannot be written.
                Nothing of it is left in the file.
        """
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._size_bytes + written)
        except OSError as error:
            os.ftruncate(self._fd, self._size_bytes)
            raise write_error(self.path, error) from error
        self._size_bytes += written

    def sync(self) -> None:
        """Wait until everything is on the disk.

        Raises:
            StorageError: it is not, and may never be.
        """
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise write_error(self.path, error) from error

    def cut(self, size_bytes: int) -> None:
        """Drop what lies behind `size_bytes`."""
        os.ftruncate(self._fd, size_bytes)
        self._size_bytes = size_bytes

    def ends_line_at(self, offset: int) -> bool:
        """True if a line ends at `offset`, or the file begins there."""
        return offset == 0 or os.pread(self._fd, 1, offset - 1) == b"\n"

    def lines_from(self, offset: int) -> Iterator[Line]:
        """The lines behind `offset`; numbers count from there."""
        with open(self._fd, "rb", closefd=False) as file:
            file.seek(offset)
            yield from read_lines(file, _MAX_RESULT_BYTES, Place(1, offset))

    def close(self) -> None:
        """Close it, and end the lock."""
        os.close(self._fd)

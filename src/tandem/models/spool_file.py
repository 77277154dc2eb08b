"""A file of weights that is gone with the process."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.errors import ConfigError

_CHUNK_BYTES = 64 << 20


class SpoolFile:
    """A file without a name: it is gone with the process, however that ends, and nobody else can
    change it.

    Args:
        directory: made if it is not there.
        layer_bytes, layers: what it will hold.

    Attributes:
        needed_bytes: of all that. free_bytes: what its file system, `device`, has room for.

    Raises:
        ConfigError: the folder cannot be used.
    """

    def __init__(self, directory: Path, layer_bytes: int, layers: int) -> None:
        self.directory = directory
        self._stride = -(-layer_bytes // BLOCK_BYTES) * BLOCK_BYTES
        self.needed_bytes = self._stride * layers
        try:
            directory.mkdir(parents=True, exist_ok=True)
            state = os.statvfs(directory)
            self.free_bytes = state.f_bavail * state.f_frsize
            self.device = directory.stat().st_dev
            self._file: IO[bytes] = tempfile.TemporaryFile(  # noqa: SIM115 - closed by `close`
                dir=directory, prefix="tandem-weights-"
            )
        except OSError as error:
            raise self._refusal(error) from None
        self._written = 0

    @property
    def path(self) -> Path:
        """Where this process finds the file, as long as it has it open."""
        return Path(f"/proc/self/fd/{self._file.fileno()}")

    def append(self, parts: list[memoryview]) -> int:
        """Write what it holds of a layer; returns where that begins.

        Raises:
            ConfigError: the disk is full, or cannot be written.
        """
        at = self._written * self._stride
        try:
            self._file.seek(at)
            for part in parts:
                for chunk in _chunks(part):
                    self._file.write(chunk)
            self._file.flush()
            # direct reads see what is on disk; pages in memory would only take room
            os.fdatasync(self._file.fileno())
            os.posix_fadvise(self._file.fileno(), at, self._stride, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._refusal(error) from None
        self._written += 1
        return at

    def close(self) -> None:
        """Let go of the file; readers with descriptors of their own keep it."""
        self._file.close()

    def _refusal(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot keep weights in {self.directory} ({error.strerror}); name another folder "
            "with --spool-dir",
            param="spool_dir",
        )


def _chunks(view: memoryview) -> Iterable[memoryview]:
    return (view[at : at + _CHUNK_BYTES] for at in range(0, len(view), _CHUNK_BYTES))

"""A file of whole layers, as the kernels read them, for weights that no other file holds so."""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from torch import Tensor

from tandem.models.disk_extents import Extent
from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_CHUNK_BYTES = 64 << 20


class WeightSpool:
    """Layers one after the other in a file without a name: it is gone with the process, however
    that ends, and nobody else can change it.

    Args:
        directory: made if it is not there.
        layer_bytes, layers: what it will hold.

    Raises:
        ConfigError: the folder cannot be used, or has less room.
    """

    def __init__(self, directory: Path, layer_bytes: int, layers: int) -> None:
        self._directory = directory
        self._stride = -(-layer_bytes // BLOCK_BYTES) * BLOCK_BYTES
        needed = self._stride * layers
        try:
            directory.mkdir(parents=True, exist_ok=True)
            state = os.statvfs(directory)
            there = state.f_bavail * state.f_frsize
            if there < needed:
                raise ConfigError(
                    f"{format_size(needed)} of weights must be converted into a file before they "
                    f"can be read from disk, but {directory} has {format_size(there)} free; name "
                    "another folder with --spool-dir, or use the checkpoint's --dtype",
                    param="spool_dir",
                )
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

    def append(self, memory: Tensor) -> Extent:
        """Write a layer, [bytes] uint8; returns where it lies.

        Raises:
            ConfigError: the disk is full, or cannot be written.
        """
        at = self._written * self._stride
        view = memory.numpy().data
        try:
            self._file.seek(at)
            for chunk in _chunks(view):
                self._file.write(chunk)
            self._file.flush()
            # direct reads see what is on disk; pages in memory would only take room
            os.fdatasync(self._file.fileno())
            os.posix_fadvise(self._file.fileno(), at, self._stride, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise self._refusal(error) from None
        self._written += 1
        return Extent(self.path, at, memory.nbytes, 0)

    def close(self) -> None:
        """Let go of the file; readers with descriptors of their own keep it."""
        self._file.close()

    def _refusal(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"cannot keep weights in {self._directory} ({error.strerror}); name another folder "
            "with --spool-dir",
            param="spool_dir",
        )


def _chunks(view: memoryview) -> Iterable[memoryview]:
    return (view[at : at + _CHUNK_BYTES] for at in range(0, len(view), _CHUNK_BYTES))

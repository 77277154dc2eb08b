"""Files of whole layers, as the kernels read them, for weights that no other file holds so."""

import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from torch import Tensor

from tandem.models.disk_extents import Extent, LayerExtents
from tandem.plan.disk_slots import BLOCK_BYTES, piece_bytes
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_CHUNK_BYTES = 64 << 20


class WeightSpool:
    """Layers one after the other, in one folder, or in stripes: pieces that lie in several folders
    in turn. An equal share of each layer is on every disk, so that half of it is read from one of
    two in the same time, whichever disk a thread waits for.

    Args:
        folders: one on each disk.
        layer_bytes, layers: what it will hold.

    Raises:
        ConfigError: a folder cannot be used, or has less room.
    """

    def __init__(self, folders: tuple[Path, ...], layer_bytes: int, layers: int) -> None:
        self._unit = layer_bytes if len(folders) == 1 else piece_bytes(len(folders))
        turns = -(-layer_bytes // (self._unit * len(folders)))
        self._files: list[SpoolFile] = []
        with ExitStack() as opened:
            for each in folders:
                self._files.append(SpoolFile(each, turns * self._unit, layers))
                opened.callback(self._files[-1].close)
            _require_room(self._files)
            self._opened = opened.pop_all()

    def append(self, memory: Tensor) -> LayerExtents:
        """Write a layer, [bytes] uint8; returns where it lies, in the order of its bytes.

        Raises:
            ConfigError: a disk is full, or cannot be written.
        """
        view, unit, count = memory.numpy().data, self._unit, len(self._files)
        paths = [file.path for file in self._files]
        units = [view[at : at + unit] for at in range(0, len(view), unit)]
        begins = [file.append(units[n::count]) for n, file in enumerate(self._files)]
        return tuple(
            Extent(paths[i % count], begins[i % count] + i // count * unit, len(each), at)
            for i, (at, each) in enumerate(zip(range(0, len(view), unit), units, strict=True))
        )

    def close(self) -> None:
        """Let go of the files; readers with descriptors of their own keep them."""
        self._opened.close()


def _require_room(files: "Sequence[SpoolFile]") -> None:
    """Of each file system for all of the files that are to lie there.

    Raises:
        ConfigError: one has less.
    """
    for device, first in {file.device: file for file in reversed(files)}.items():
        needed = sum(file.needed_bytes for file in files if file.device == device)
        if first.free_bytes < needed:
            raise ConfigError(
                f"{format_size(needed)} of weights must be converted into a file before they "
                f"can be read from disk, but {first.directory} has "
                f"{format_size(first.free_bytes)} free; name another folder with --spool-dir, or "
                "use the checkpoint's --dtype",
                param="spool_dir",
            )


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

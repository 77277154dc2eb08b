"""Files of whole layers, as the kernels read them, for weights that no other file holds so."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from torch import Tensor

from tandem.models.disk_extents import Extent, LayerExtents
from tandem.models.spool_file import SpoolFile
from tandem.plan.disk_slots import piece_bytes
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size


class WeightSpool:
    """Layers one after the other, in one folder, or in stripes: pieces that lie in several folders
    in turn. Of each layer every disk has its share, so that all have given theirs at the same time,
    whichever disk a thread waits for.

    Args:
        folders: one on each disk.
        layer_bytes, layers: what it will hold.
        shares: of each folder, in sum 1; None: equal ones.

    Raises:
        ConfigError: a folder cannot be used, or has less room.
    """

    def __init__(
        self,
        folders: tuple[Path, ...],
        layer_bytes: int,
        layers: int,
        shares: Sequence[float] | None = None,
    ) -> None:
        count = len(folders)
        self._unit = layer_bytes if count == 1 else piece_bytes(count)
        pieces = -(-layer_bytes // self._unit)
        self._owners = _in_turn(shares or (1 / count,) * count, pieces)
        self._files: list[SpoolFile] = []
        with ExitStack() as opened:
            for number, each in enumerate(folders):
                held = self._owners.count(number) * self._unit
                self._files.append(SpoolFile(each, held, layers))
                opened.callback(self._files[-1].close)
            _require_room(self._files)
            self._opened = opened.pop_all()

    def append(self, memory: Tensor) -> LayerExtents:
        """Write a layer, [bytes] uint8; returns where it lies, in the order of its bytes.

        Raises:
            ConfigError: a disk is full, or cannot be written.
        """
        view, unit = memory.numpy().data, self._unit
        paths = [file.path for file in self._files]
        units = [view[at : at + unit] for at in range(0, len(view), unit)]
        of_files: list[list[memoryview]] = [[] for _ in self._files]
        places: list[int] = []
        for owner, each in zip(self._owners, units, strict=True):
            places.append(len(of_files[owner]) * unit)
            of_files[owner].append(each)
        begins = [file.append(of) for file, of in zip(self._files, of_files, strict=True)]
        return tuple(
            Extent(paths[owner], begins[owner] + place, len(each), i * unit)
            for i, (owner, place, each) in enumerate(zip(self._owners, places, units, strict=True))
        )

    def close(self) -> None:
        """Let go of the files; readers with descriptors of their own keep them."""
        self._opened.close()


def _in_turn(shares: Sequence[float], pieces: int) -> list[int]:
    """Whose each piece is: at any of them, all have had as near to their shares as can be, so that
    threads that take one after the other are on all disks.
    """
    owed, owners = [0.0] * len(shares), list[int]()
    for _ in range(pieces):
        owed = [before + share for before, share in zip(owed, shares, strict=True)]
        owner = max(range(len(owed)), key=lambda n: round(owed[n], 9))  # of equal ones the first
        owed[owner] -= 1.0
        owners.append(owner)
    return owners


def _require_room(files: Sequence[SpoolFile]) -> None:
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

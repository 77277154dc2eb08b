"""Copies of a checkpoint's files on other disks, which the same bytes are read from."""

import os
from collections.abc import Iterable
from pathlib import Path

from tandem.models.disk_extents import Extent
from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.errors import ModelError

_STRIDE_BYTES = 16 << 20


def copies_in(folder: Path, extents: Iterable[Extent]) -> dict[Path, Path]:
    """By file that layers are read from, the one of the same name in `folder`.

    They are taken to be copies if they are as large, and alike in a block of every few mebibytes
    that are read: weights of another model, or of another state of the same one, differ there.

    Raises:
        ModelError: one is missing, unreadable, no copy, or the very file.
    """
    found: dict[Path, Path] = {}
    for extent in extents:
        there = found.setdefault(extent.file, folder / extent.file.name)
        try:
            same = _is_alike(extent, there)
        except OSError as error:
            raise _refusal(there, extent.file, error.strerror or "unreadable") from None
        if not same:
            raise _refusal(there, extent.file, "it differs")
        if there.samefile(extent.file):  # perhaps by a link
            raise ModelError(
                f"{there} is {extent.file} itself, no copy on another disk; leave {folder} out of "
                "--disk-copies, or copy the file there"
            )
    return found


def _is_alike(extent: Extent, there: Path) -> bool:
    if there.stat().st_size != extent.file.stat().st_size:
        return False
    end = extent.offset + extent.size_bytes
    with extent.file.open("rb", buffering=0) as original, there.open("rb", buffering=0) as copy:
        return all(
            _block(original.fileno(), at, end) == _block(copy.fileno(), at, end)
            for at in range(extent.offset, end, _STRIDE_BYTES)
        )


def _block(descriptor: int, at: int, end: int) -> bytes:
    return os.pread(descriptor, min(BLOCK_BYTES, end - at), at)


def _refusal(there: Path, file: Path, reason: str) -> ModelError:
    return ModelError(
        f"{there} is no copy of {file} ({reason}); copy it again, or leave {there.parent} out of "
        "--disk-copies"
    )

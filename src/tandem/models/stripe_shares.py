"""Which share of converted layers lies on which disk: by how fast they read side by side."""

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from torch import frombuffer, uint8

from tandem.cost.park_egger.nvme_balance import Shares, balance
from tandem.devices.disk import open_for_reading
from tandem.models.spool_file import SpoolFile
from tandem.plan.disk_slots import THREADS, piece_bytes
from tandem.spec.config import HostIO

PROBED_BYTES = 32 << 20
_WORTH_PROBING = 8  # times as much, to be written anyway


def stripe_shares(folders: Sequence[Path], io: HostIO, size_bytes: int) -> Shares:
    """One per folder. Those of little are equal: it is read before disks could be told apart.

    Args:
        size_bytes: that will be written to all of them.

    Raises:
        ConfigError: a folder cannot be used, or not be read so.
    """
    count = len(folders)
    if count == 1 or size_bytes < _WORTH_PROBING * PROBED_BYTES:
        return (1 / count,) * count
    with ExitStack() as opened:
        disks: list[_ProbedDisk] = []
        for folder in folders:
            disks.append(_ProbedDisk(folder, io, count))
            opened.callback(disks[-1].close)
        readers = opened.enter_context(ThreadPoolExecutor(THREADS * count))
        return balance(count, lambda shares: read_s(readers, disks, shares))


class _ProbedDisk:
    """A file of as many bytes as are read of all disks together, in pieces as layers are."""

    def __init__(self, folder: Path, io: HostIO, count: int) -> None:
        self._piece = piece_bytes(count)
        content = frombuffer(bytearray(os.urandom(PROBED_BYTES)), dtype=uint8).numpy().data
        file = SpoolFile(folder, PROBED_BYTES, 1)
        try:
            file.append([content])
            self._descriptor = open_for_reading(file.path, io)
        finally:
            file.close()  # the reader has a descriptor of its own
        self._cached = io == "cached"

    def parts(self, share: float) -> Iterator[Callable[[], float]]:
        """What each of its threads does for a share of the bytes; each returns when it ended."""
        if self._cached:  # what memory has kept of the file would be no disk's
            os.posix_fadvise(self._descriptor, 0, PROBED_BYTES, os.POSIX_FADV_DONTNEED)
        end = max(1, round(share * PROBED_BYTES / self._piece)) * self._piece
        for first in range(THREADS):
            begins = range(first * self._piece, min(end, PROBED_BYTES), THREADS * self._piece)
            yield lambda begins=begins: self._read(begins)

    def _read(self, begins: range) -> float:
        with mmap.mmap(-1, self._piece) as memory:
            for at in begins:
                os.preadv(self._descriptor, [memory], at)
        return time.perf_counter()

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)


def read_s(
    readers: ThreadPoolExecutor, disks: "Sequence[_ProbedDisk]", shares: Shares
) -> list[float]:
    """Seconds until each disk has given its share, all of them at once."""
    parts = [list(disk.parts(share)) for disk, share in zip(disks, shares, strict=True)]
    begin_s = time.perf_counter()
    turns = [readers.submit(part) for each in zip(*parts, strict=True) for part in each]
    ended = [turn.result() for turn in turns]
    return [max(ended[n :: len(disks)]) - begin_s for n in range(len(disks))]

"""How fast a disk can be read, by plain threads that share nothing with the engine's reader."""

import ctypes
import mmap
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tandem.devices.disk import open_for_reading
from tandem.devices.host_memory import bulk_zeros
from tandem.probes.interleave import interleave
from tandem.spec.errors import ConfigError

_WAYS = ((1, 8), (2, 4), (4, 1), (4, 4), (8, 1))  # threads, MiB at once; the first: one reader
_MEMORY_BYTES = max(threads * mib for threads, mib in _WAYS) << 20
_TRIALS = 3
PROBE_STEP_BYTES = 64 << 20
"""A probe's file is some of these long."""
_GRAIN_BYTES = 1 << 20  # of a share; direct reads want whole sectors


@dataclass(frozen=True, slots=True)
class _Way:
    threads: int
    piece_bytes: int


class DiskProbe:
    """A file of random bytes, so that nothing between here and the disk can compress it; read past
    the page cache, of which it holds nothing, into memory of the kind that weights are read into:
    a request to the disk that names a page of 4 KiB after the other can take twice as long. The
    best of several ways to read counts.

    Args:
        directory: on the disk in question.
        size_bytes: of the file; a multiple of `PROBE_STEP_BYTES`.
        trials: of each way to read, before one is chosen.

    Raises:
        ConfigError: the file cannot be written there, read directly, or kept out of memory.
    """

    def __init__(
        self, directory: Path, size_bytes: int, seed: int = 0, trials: int = _TRIALS
    ) -> None:
        self._size = size_bytes
        file = _random_file(directory, size_bytes, seed)
        with file:
            path = Path(f"/proc/self/fd/{file.fileno()}")
            share = resident_share(file.fileno(), size_bytes)
            if share > 0:
                raise ConfigError(
                    f"{share:.0%} of a file in {directory} stays in memory although it was written "
                    "out; this is no disk whose rate could be measured"
                )
            self._descriptor = open_for_reading(path, "direct", directory)
        self._memory = bulk_zeros((_MEMORY_BYTES,), torch.uint8).numpy()
        ways = {str(way): way for way in (_Way(threads, mib << 20) for threads, mib in _WAYS)}
        rates = interleave({n: partial(self._rate, way) for n, way in ways.items()}, trials)
        self._way = ways[max(ways, key=lambda name: statistics.median(rates[name]))]

    def measure(self, times: int = 1) -> float:
        """Bytes/s of reading the file so many times over."""
        return times / sum(1.0 / self._rate(self._way) for _ in range(times))

    def measure_one_reader(self) -> float:
        """Bytes/s of one thread that reads the file once."""
        threads, mib = _WAYS[0]
        return self._rate(_Way(threads, mib << 20))

    def seconds(self, share: float) -> float:
        """To read as much of the file once; in whole MiB, at least one."""
        size = max(1, round(share * self._size / _GRAIN_BYTES)) * _GRAIN_BYTES
        return self._seconds(self._way, size)

    def describe(self) -> str:
        """How it is read."""
        return f"{self._way.threads} threads, {self._way.piece_bytes >> 20} MiB at once"

    def close(self) -> None:
        """Give the file back."""
        os.close(self._descriptor)

    def _rate(self, way: _Way) -> float:
        return self._size / self._seconds(way, self._size)

    def _seconds(self, way: _Way, size: int) -> float:
        begin = time.perf_counter()
        with ThreadPoolExecutor(way.threads) as pool:
            list(pool.map(lambda first: self._read(way, first, size), range(way.threads)))
        return time.perf_counter() - begin

    def _read(self, way: _Way, first: int, size: int) -> None:
        """Every `threads`-th piece from the `first` on, of so many bytes."""
        begin = first * way.piece_bytes
        memory = self._memory[begin : begin + way.piece_bytes]
        for at in range(begin, size, way.threads * way.piece_bytes):
            part = memory[: size - at]
            if os.preadv(self._descriptor, [part.data], at) != len(part):
                raise OSError("the probe's file was cut off")


def _random_file(directory: Path, size_bytes: int, seed: int):
    random = np.random.default_rng(seed)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=directory, prefix="tandem-probe-")  # noqa: SIM115
        for _ in range(0, size_bytes, PROBE_STEP_BYTES):
            file.write(random.bytes(PROBE_STEP_BYTES))
        file.flush()
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as error:
        raise ConfigError(
            f"cannot write {size_bytes >> 20} MiB to {directory} ({error.strerror}); name another "
            "folder"
        ) from None
    return file


def resident_share(descriptor: int, size_bytes: int) -> float:
    """Share of a file's pages that the page cache holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    pages = -(-size_bytes // mmap.PAGESIZE)
    found = (ctypes.c_ubyte * pages)()
    with mmap.mmap(descriptor, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as at:
        address = ctypes.addressof(ctypes.c_char.from_buffer(at))
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size_bytes), found) != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
    return sum(page & 1 for page in found) / pages

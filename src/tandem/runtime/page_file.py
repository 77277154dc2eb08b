"""KV blocks in slots of a file, each with a checksum: what is damaged is told from what is not.

Two files: `pages` holds the slots, one after the other; `index` an entry for each, which names the
block's digest and checksum, and has a checksum of its own. A slot's entry is taken away before the
slot is written and comes back afterwards. A process that is killed leaves nothing wrong therefore;
a machine that loses power may, and a disk that decays: the checksums show it, so nothing is flushed
in any order.
"""

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tandem.memory.disk_index import StoredBlock
from tandem.runtime.page_folder import Layout, PageFolder
from tandem.spec.errors import ConfigError
from tandem.spec.units import format_size

_PAGES, _INDEX = "tandem-kv.pages", "tandem-kv.index"
_ENTRY = struct.Struct("<16sQII")  # digest, age, checksum of the block, checksum of the entry
_ALIGNMENT_BYTES = 4096
_BESIDE_BYTES = 16384  # the other files of the folder
_READ_ENTRIES = 1 << 15
_MOST_PARTS = 1024  # of one read or write (IOV_MAX)

Parts = Sequence[memoryview]
"""A block: one contiguous piece of bytes per layer."""


class PageFile:
    """Slots for blocks of one size.

    Reads and writes may run on two threads at once, as long as no slot is both read and written.

    Args:
        block_bytes: of all layers.
        size_bytes: that all files together may take.

    Raises:
        ConfigError: the folder cannot be used (see `PageFolder`), or the size holds no block.
    """

    def __init__(self, path: Path, layout: Layout, block_bytes: int, size_bytes: int) -> None:
        self.path, self.block_bytes = path, block_bytes
        self._slot_bytes = -(-block_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self.num_slots = (size_bytes - _BESIDE_BYTES) // (self._slot_bytes + _ENTRY.size)
        if self.num_slots < 1:
            least = self._slot_bytes + _ENTRY.size + _BESIDE_BYTES
            raise ConfigError(
                f"--kv-disk-size {format_size(size_bytes)} does not hold one KV block; raise it "
                f"to {format_size(least)} at least",
                param="kv_disk_size",
            )
        self._folder = PageFolder(path, layout, _PAGES)
        self._files: list[int] = []
        try:
            self._pages, self._index = self._open(_PAGES), self._open(_INDEX)
            if self._folder.is_new:
                os.ftruncate(self._index, 0)
                os.ftruncate(self._pages, 0)
                self._folder.describe(layout)
            self._cut()
        except OSError as error:
            self.close()
            raise ConfigError(
                f"--kv-disk {path} cannot be used ({error.strerror}); name a folder that can be "
                "written",
                param="kv_disk",
            ) from None
        except ConfigError:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        """Most that the slots take."""
        return self.num_slots * self._slot_bytes

    def stored(self) -> Iterator[StoredBlock]:
        """What is there, by its entries; whether the blocks are sound shows when they are read."""
        whole = os.fstat(self._pages).st_size
        for first in range(0, self.num_slots, _READ_ENTRIES):
            count = min(_READ_ENTRIES, self.num_slots - first)
            text = os.pread(self._index, count * _ENTRY.size, first * _ENTRY.size)
            entries = _ENTRY.iter_unpack(text[: len(text) // _ENTRY.size * _ENTRY.size])
            for slot, (digest, age, checksum, own) in enumerate(entries, first):
                ends = slot * self._slot_bytes + self.block_bytes
                if age and ends <= whole and own == _own_checksum(slot, digest, age, checksum):
                    yield StoredBlock(slot, digest, checksum, age)

    def write(self, slot: int, digest: bytes, age: int, parts: Parts) -> int:
        """Put a block into a slot; returns its checksum.

        Raises:
            OSError: the disk takes no more; the slot holds nothing.
        """
        self._forget(slot)
        checksum = _checksum(digest, parts)
        _write_all(self._pages, parts, slot * self._slot_bytes)
        own = _own_checksum(slot, digest, age, checksum)
        entry = memoryview(_ENTRY.pack(digest, age, checksum, own))
        _write_all(self._index, [entry], slot * _ENTRY.size)
        return checksum

    def read(self, slot: int, digest: bytes, checksum: int, parts: Parts) -> bool:
        """Bring a slot's block into `parts`; False if it is not what was written there, and then
        `parts` hold anything.
        """
        offset = slot * self._slot_bytes
        try:
            whole = _read_all(self._pages, parts, offset)
        except OSError:
            whole = False
        sound = whole and _checksum(digest, parts) == checksum
        if sound:
            # it is in memory now, which the engine shares out: no second copy in the system's
            os.posix_fadvise(self._pages, offset, self._slot_bytes, os.POSIX_FADV_DONTNEED)
        return sound

    def discard(self, slot: int) -> None:
        """The slot's block is damaged: a later engine shall not find it."""
        self._forget(slot)

    def flush(self) -> None:
        """Bring what was written to the disk, and free the system's copy of it.

        Raises:
            OSError: the disk did not take it.
        """
        os.fdatasync(self._pages)
        os.posix_fadvise(self._pages, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Let others use the folder; nothing may be read or written any more."""
        files, self._files = self._files, []
        for descriptor in files:
            os.close(descriptor)
        self._folder.close()

    def _open(self, name: str) -> int:
        descriptor = self._folder.open(name)
        self._files.append(descriptor)
        return descriptor

    def _cut(self) -> None:
        """No more than the bound, if it was larger before."""
        for file, most in (
            (self._pages, self.num_slots * self._slot_bytes),
            (self._index, self.num_slots * _ENTRY.size),
        ):
            if os.fstat(file).st_size > most:
                os.ftruncate(file, most)

    def _forget(self, slot: int) -> None:
        _write_all(self._index, [memoryview(bytes(_ENTRY.size))], slot * _ENTRY.size)


def _checksum(digest: bytes, parts: Parts) -> int:
    """Of a block's bytes, begun with its digest: a block in the wrong slot is found out, too."""
    value = zlib.crc32(digest)
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def _own_checksum(slot: int, digest: bytes, age: int, checksum: int) -> int:
    return zlib.crc32(struct.pack("<16sQIQ", digest, age, checksum, slot))


def _write_all(file: int, parts: Parts, offset: int) -> None:
    for group in _groups(parts):
        while group:
            done = os.pwritev(file, group, offset)
            offset += done
            group = _rest(group, done)


def _read_all(file: int, parts: Parts, offset: int) -> bool:
    """False if the file ends before."""
    for group in _groups(parts):
        while group:
            done = os.preadv(file, group, offset)
            if done == 0:
                return False
            offset += done
            group = _rest(group, done)
    return True


def _groups(parts: Parts) -> Iterator[list[memoryview]]:
    for first in range(0, len(parts), _MOST_PARTS):
        yield list(parts[first : first + _MOST_PARTS])


def _rest(parts: list[memoryview], done: int) -> list[memoryview]:
    """What is left when `done` bytes of it have been moved."""
    while parts and done >= len(parts[0]):
        done -= len(parts[0])
        parts = parts[1:]
    return [parts[0][done:], *parts[1:]] if parts and done else parts

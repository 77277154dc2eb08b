"""Layers on disk that kvikio reads into a GPU's memory, as compiled code does into the host's.

Its methods are those of `_native.WeightReader`: layers in a circle, the next ones read while one is
used. A slot is filled again only after `release`, which the queue that reads calls when the copy
out of it has ended, so nothing is overwritten that a stream has yet to read; and `acquire` waits
until all of a layer has come, so what is launched behind it finds it.
"""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from tandem.devices.disk import open_for_reading
from tandem.models.disk_extents import Extent, LayerExtents, base_of
from tandem.plan.disk_slots import BLOCK_BYTES
from tandem.spec.errors import ConfigError

PIECE_BYTES = 4 << 20
"""Of a read, as kvikio itself cuts them."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A read under way."""

    future: Any
    size_bytes: int
    file: Path
    copy: int


class DirectReader:
    """Reads layers into slots.

    Args:
        kvikio: the module, of which `CuFile`, `defaults`, `memory_register` and
            `memory_deregister` are used.
        copies: by disk, where each file that layers are in lies there. Pieces are taken in turn.
        layers: what each is read from, in the order of the circle.
        slots: [slots, bytes] uint8, in whole blocks.
        threads: that read at once.

    Attributes:
        bytes_read: since the start, from each disk.

    Raises:
        ConfigError: kvikio refuses a file. Nothing is left open, whatever is raised.
        ModelError: a file is missing or unreadable.
        OSError, RuntimeError: kvikio cannot read, or register memory.
    """

    def __init__(
        self,
        kvikio: ModuleType | Any,
        copies: Sequence[dict[Path, Path]],
        layers: Sequence[LayerExtents],
        slots: Tensor,
        threads: int,
    ) -> None:
        self._kvikio, self._layers, self._slots = kvikio, layers, slots
        self._files: list[dict[Path, Any]] = []
        self._names = [
            {file: os.path.realpath(path) for file, path in there.items()} for there in copies
        ]
        self._registered = False
        self.bytes_read = [0] * len(copies)
        self._begun = self._acquired = self._released = 0
        self._coming: dict[int, deque[_Read]] = {}
        try:
            self._start(copies, threads)
        except BaseException:
            self.stop()  # nobody else will
            raise

    def acquire(self, layer: int) -> int:
        """Wait for a layer, the circle's next; where in the slots' memory it begins.

        Raises:
            RuntimeError: it cannot be read, or a file has changed.
        """
        turn = self._acquired
        assert layer == turn % len(self._layers)
        assert turn < self._begun
        self._await_all(self._coming[turn])
        del self._coming[turn]
        self._check_files(layer)
        self._acquired += 1
        return self._slot_of(turn) * self._slots.shape[1] + base_of(self._layers[layer])

    def release(self) -> None:
        """The layer longest in use is not needed any more: its slot is filled anew."""
        assert self._released < self._acquired
        self._released += 1
        self._begin()

    def stop(self) -> None:
        """Wait for reads that have begun, and let go of files and memory."""
        for reads in self._coming.values():
            with suppress(RuntimeError):  # nobody will look at what they bring
                self._await_all(reads)
        self._coming = {}
        registered, self._registered = self._registered, False
        try:
            if registered:
                self._kvikio.memory_deregister(self._slots)
        finally:
            for there in self._files:
                for file in there.values():
                    file.close()
            self._files = []

    def _start(self, copies: Sequence[dict[Path, Path]], threads: int) -> None:
        self._kvikio.defaults.set("num_threads", threads)
        for there in copies:
            opened: dict[Path, Any] = {}
            self._files.append(opened)
            for file, path in there.items():
                opened[file] = self._open(path)
        self._states = [
            {file: _state(opened) for file, opened in there.items()} for there in self._files
        ]
        if self._slots.is_cuda:
            self._kvikio.memory_register(self._slots)
            self._registered = True
        for _ in range(len(self._slots)):
            self._begin()

    def _open(self, path: Path) -> Any:
        name = Path(os.path.realpath(path))
        os.close(open_for_reading(path, "cached", name))  # it is there
        try:
            return self._kvikio.CuFile(path, "r")
        except (OSError, RuntimeError) as error:
            told = " ".join(str(error).split())
            raise ConfigError(
                f"--disk-io gpudirect: kvikio cannot read {name} straight into the GPU's memory "
                f"({told}); keep it on a file system that GPUDirect Storage knows, or use "
                "--disk-io direct",
                param="disk_io",
            ) from None

    def _begin(self) -> None:
        turn = self._begun
        layer = self._layers[turn % len(self._layers)]
        slot, base = self._slots[self._slot_of(turn)], base_of(layer)
        reads = self._coming[turn] = deque[_Read]()  # whichever began is waited for
        for number, piece in enumerate(pieces(layer)):
            copy, first = number % len(self._files), base + piece.target
            place = slot[first : first + piece.size_bytes]
            buffer = place if place.is_cuda else place.numpy()
            file = self._files[copy][piece.file]
            try:
                future = file.pread(buffer, size=piece.size_bytes, file_offset=piece.offset)
            except (OSError, RuntimeError) as error:
                raise self._error(copy, piece.file, str(error)) from None
            reads.append(_Read(future, piece.size_bytes, piece.file, copy))
        self._begun += 1

    def _await_all(self, reads: deque[_Read]) -> None:
        """Until none of them is under way, whatever becomes of one; leaves none.

        Raises:
            RuntimeError: what became of the first one that failed.
        """
        failed: RuntimeError | None = None
        while reads:
            try:
                self._await(reads.popleft())
            except RuntimeError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _await(self, read: _Read) -> None:
        try:
            size = read.future.get()
        except (OSError, RuntimeError) as error:
            raise self._error(read.copy, read.file, str(error)) from None
        if size != read.size_bytes:
            reason = f"{size} of {read.size_bytes} bytes came"
            raise self._error(read.copy, read.file, reason)
        self.bytes_read[read.copy] += size

    def _slot_of(self, turn: int) -> int:
        return turn % len(self._slots)

    def _check_files(self, layer: int) -> None:
        used = {extent.file for extent in self._layers[layer]}
        for copy, there in enumerate(self._files):
            for file in used:
                if _state(there[file]) != self._states[copy][file]:
                    raise RuntimeError(
                        f"{self._names[copy][file]} has changed while layers were read from it"
                    )

    def _error(self, copy: int, file: Path, reason: str) -> RuntimeError:
        name = self._names[copy][file]
        return RuntimeError(f"cannot read weights from {name} by kvikio ({reason})")


def pieces(layer: LayerExtents) -> Iterator[Extent]:
    """The same bytes in reads, which but for an extent's ends begin and end at a file's blocks:
    others take a detour through a buffer of cuFile's.
    """
    for extent in layer:
        first, end = extent.offset, extent.offset + extent.size_bytes
        while first < end:
            block = -(-(first + 1) // BLOCK_BYTES) * BLOCK_BYTES
            whole = first % BLOCK_BYTES == 0
            last = first + PIECE_BYTES if whole else block
            if last >= end:
                last = end // BLOCK_BYTES * BLOCK_BYTES
                last = last if last > first else end
            yield Extent(extent.file, first, last - first, extent.target + first - extent.offset)
            first = last


def _state(file: Any) -> tuple[int, int]:
    """Of an open file, what tells whether it has changed."""
    found = os.fstat(file.fileno())
    return found.st_size, found.st_mtime_ns

"""Layers whose weights lie in files and are read by the host in every sweep."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tandem.devices.disk import open_for_reading
from tandem.devices.host_memory import bulk_zeros
from tandem.models.disk_extents import Extent, LayerExtents, base_of
from tandem.models.weight_layout import LayerLayout, Modules
from tandem.plan.disk_slots import (
    BLOCK_BYTES,
    SLOTS,
    THREADS,
    piece_bytes,
    slot_bytes,
    slots_bytes,
)
from tandem.spec.config import DiskIO, HostIO
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.kernels import _native
    from tandem.models.direct_reader import DirectReader

Pin = Callable[[Tensor], Callable[[], None]]


@dataclass(frozen=True, slots=True)
class DiskPlacement:
    """Which layers stay on disk, and how they are read.

    Attributes:
        layers: in the order in which they are read, in a circle.
        spools: folders on as many disks, for layers that no file holds as the kernels read them;
            each layer is divided among them.
        copies: folders with copies of the checkpoint's files, on other disks, that the same layers
            are read from at the same time.
    """

    layers: tuple[int, ...]
    io: DiskIO
    spools: tuple[Path, ...]
    copies: tuple[Path, ...] = ()

    @property
    def host_io(self) -> HostIO:
        """How the host reads the same files, if it does."""
        return "cached" if self.io == "cached" else "direct"


class DiskWeights:
    """Layers in files, and the slots in memory that they go through.

    A layer's matrices are one piece of a slot. Its norms and biases are small, and resident. Slots
    are in host memory, or on a GPU into which kvikio reads (`gpudirect`).

    Args:
        device: where the maths is done, and norms and biases lie.
        pin: makes the slots known to that device.

    Attributes:
        placement: which layers these are.
        vectors: by layer, its norms and biases.
        stored: by layer, its weights as a checkpoint names them; the matrices without memory.
        reader: of the slots, once `open` has said what they are read from.
    """

    def __init__(
        self,
        placement: DiskPlacement,
        layout: LayerLayout,
        device: torch.device,
        pin: Pin | None = None,
    ) -> None:
        self.placement = placement
        self.layout = layout
        self._direct = placement.io == "gpudirect"
        there = device if self._direct else torch.device("cpu")
        self._slots = _whole_blocks(SLOTS, slot_bytes(layout.size_bytes), there)
        self._unpin = None if pin is None or self._direct else pin(self._slots)
        nowhere = layout.allocate(torch.device("meta"))
        self.vectors: dict[int, list[Tensor]] = {
            layer: layout.allocate_vectors(device) for layer in placement.layers
        }
        self.stored: dict[int, Modules] = {
            layer: layout.modules(nowhere, vectors) for layer, vectors in self.vectors.items()
        }
        self.reader: _native.WeightReader | DirectReader | None = None
        self._bases: dict[int, int] = {}

    def in_first_slot(self) -> dict[int, Modules]:
        """By layer, its weights as maths on the host reads them when they have come, at their
        addresses in the first slot; the compiled layers know which slot it is.
        """
        here = self._slots[0]
        return {layer: self.layout.modules(here, v) for layer, v in self.vectors.items()}

    def in_slots(self) -> dict[int, list[Modules]]:
        """By layer, its weights in each slot, once `open` has said where in a slot it begins."""
        return {
            layer: [
                self.layout.modules(self.at(slot * self.slot_bytes + self._bases[layer]), vectors)
                for slot in range(SLOTS)
            ]
            for layer, vectors in self.vectors.items()
        }

    @property
    def slot_bytes(self) -> int:
        """From one slot's beginning to the next one's."""
        return self._slots.shape[1]

    def at(self, offset: int) -> Tensor:
        """A layer's matrices where the reader says that they begin: [bytes] uint8."""
        return self._slots.view(-1)[offset : offset + self.layout.size_bytes]

    @property
    def slots_bytes(self) -> int:
        """Host memory of the slots, and of blocks on their way."""
        return 0 if self._direct else slots_bytes(self.layout.size_bytes)

    @property
    def direct_slots_bytes(self) -> int:
        """The GPU's memory of slots that are there."""
        return self._slots.nbytes if self._direct else 0

    @property
    def disk_bytes(self) -> int:
        """What every sweep reads."""
        return len(self.placement.layers) * self.layout.size_bytes

    def open(self, extents: Mapping[int, LayerExtents], stripes: int = 1) -> None:
        """Begin to read the first layers; `extents` says what from.

        Args:
            stripes: disks that the extents' files lie on.

        Raises:
            ConfigError: a file system refuses direct reads, or kvikio to read past host memory.
            ModelError: a file is missing or unreadable, or what should be a copy is none.
        """
        layers = [extents[layer] for layer in self.placement.layers]
        self._bases = {layer: base_of(extents[layer]) for layer in self.placement.layers}
        every = [extent for layer in layers for extent in layer]
        files = list(dict.fromkeys(extent.file for extent in every))
        numbers = {file: number for number, file in enumerate(files)}
        copies = [files, *self._copies(files, every)]
        disks = stripes * len(copies)
        if self._direct:
            found = [dict(zip(files, there, strict=True)) for there in copies]
            self.reader = self._read_directly(found, layers, THREADS * disks)
            return
        from tandem.kernels import _native

        with ExitStack() as opened:
            self.reader = _native.WeightReader(  # has descriptors of its own
                [[self._open(file, opened) for file in there] for there in copies],
                [
                    (
                        base_of(layer),
                        [(numbers[e.file], e.offset, e.size_bytes, e.target) for e in layer],
                    )
                    for layer in layers
                ],
                self._slots,
                THREADS * stripes,
                piece_bytes(disks),
                BLOCK_BYTES if self.placement.host_io == "direct" else 1,
            )

    def _read_directly(
        self, copies: list[dict[Path, Path]], layers: list[LayerExtents], threads: int
    ) -> "DirectReader":
        # no other start needs them
        from tandem.devices.cuda.gpu_direct import without_fallback
        from tandem.models.direct_reader import DirectReader

        try:
            return DirectReader(without_fallback(), copies, layers, self._slots, threads)
        except (OSError, RuntimeError) as error:
            told = " ".join(str(error).split())
            raise ConfigError(
                f"--disk-io gpudirect: {told}; use --disk-io direct", param="disk_io"
            ) from None

    def _copies(self, files: list[Path], extents: list[Extent]) -> Iterator[list[Path]]:
        """The same files on other disks."""
        for folder in self.placement.copies:
            from tandem.models.disk_copies import copies_in  # no other start needs it

            there = copies_in(folder, extents)
            yield [there[file] for file in files]

    def _open(self, file: Path, opened: ExitStack) -> tuple[int, str]:
        """Its descriptor, and its path for messages."""
        descriptor = open_for_reading(file, self.placement.host_io)
        opened.callback(os.close, descriptor)
        return descriptor, os.readlink(f"/proc/self/fd/{descriptor}")

    @property
    def pinned_bytes(self) -> int:
        """Of the slots, if they are known to the accelerator."""
        return 0 if self._unpin is None else self._slots.nbytes

    def close(self) -> None:
        """Read no more, and let the device forget the slots."""
        if self.reader is not None:
            self.reader.stop()
        if self._unpin is not None:
            self._unpin()
            self._unpin = None


def _whole_blocks(count: int, size_bytes: int, device: torch.device) -> Tensor:
    """Memory that begins with a block: [count, size_bytes] uint8."""
    shape = (count * size_bytes + BLOCK_BYTES,)
    if device.type == "cpu":
        memory = bulk_zeros(shape, torch.uint8)
    else:
        memory = torch.empty(shape, dtype=torch.uint8, device=device)
    start = -memory.data_ptr() % BLOCK_BYTES
    return memory[start : start + count * size_bytes].view(count, size_bytes)

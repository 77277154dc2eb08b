"""Layers on disk beside an accelerator: which one is in which slot that they are read into."""

from collections import deque
from typing import TYPE_CHECKING

from torch import Tensor

from tandem.models.disk_weights import DiskWeights
from tandem.models.weight_layout import Modules
from tandem.plan.disk_slots import slots_in_use

if TYPE_CHECKING:
    from tandem.kernels import _native
    from tandem.models.direct_reader import DirectReader


class DiskStream:
    """Takes layers from their reader in turn, and says where they lie until they have been used.

    The order of reads and of uses is a program's (`plan/disk_reads.py`); it leaves the reader at
    the same place of its circle from sweep to sweep.
    """

    def __init__(self, weights: DiskWeights) -> None:
        self._weights = weights
        self._layers = weights.placement.layers
        self._taken = 0  # since the start
        self._held: deque[int] = deque()
        self._offsets: dict[int, int] = {}  # in the slots' memory

    def in_slots(self) -> dict[int, list[Modules]]:
        """By layer, its weights as they are in each slot."""
        return self._weights.in_slots()

    def begin(self) -> None:
        """Wait for the circle's first layers; nothing may be in flight.

        Raises:
            RuntimeError: a file cannot be read, or has changed.
        """
        while self._held:
            self._release()
        while self._taken % len(self._layers):  # programs before this were not ended
            self._take()
            self._release()
        for _ in range(slots_in_use(len(self._layers))):
            self._take()

    def reach(self, layer: int) -> None:
        """Let go of layers until `layer` is the one that was taken first.

        Raises:
            RuntimeError: as `begin`.
        """
        while self._held[0] != layer:
            self.follow()

    def follow(self) -> None:
        """Let go of the layer that was taken first, and wait for the next one.

        Raises:
            RuntimeError: as `begin`.
        """
        self._release()
        self._take()

    def place(self, layer: int) -> Tensor:
        """Where a layer lies that was taken and not yet let go: [bytes] uint8."""
        return self._weights.at(self._offsets[layer])

    def slot_of(self, layer: int) -> int:
        """Which slot it is in, likewise."""
        return self._offsets[layer] // self._weights.slot_bytes

    def oldest(self) -> Tensor:
        """Where the layer lies that is let go next."""
        return self.place(self._held[0])

    def _take(self) -> None:
        number = self._taken % len(self._layers)
        layer = self._layers[number]
        self._offsets[layer] = self._reader.acquire(number)
        self._held.append(layer)
        self._taken += 1

    def _release(self) -> None:
        self._reader.release()
        self._held.popleft()

    @property
    def _reader(self) -> "_native.WeightReader | DirectReader":
        assert self._weights.reader is not None
        return self._weights.reader

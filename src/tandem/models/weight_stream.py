"""Layers whose weights lie in host memory, for the CPU or to come to the accelerator."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.models.weight_layout import LayerLayout, Modules
from tandem.plan.sweep_layers import SweepLayers

Pin = Callable[[Tensor], Callable[[], None]]


class WeightStream:
    """Layers in host memory, and the slots on the accelerator that streamed ones go through.

    A layer's matrices are one piece of memory, in the host and in a slot, so that they come in one
    copy. Its norms and biases are small, and resident.

    Args:
        hosted: streamed layers, and those that are always computed on the CPU.
        layout: of every layer's weights.
        device: of the slots.
        pin: makes what is copied known to the device.

    Attributes:
        stored: by layer, its weights in host memory: what a checkpoint is read into.
        used: by layer, its weights as the accelerator sees them when they have come; of layers
            that never come, as the CPU does.
    """

    def __init__(
        self,
        hosted: SweepLayers,
        layout: LayerLayout,
        device: torch.device,
        pin: Pin | None = None,
    ) -> None:
        streamed = hosted.streamed
        self._streamed = streamed
        layers = tuple(sorted({*streamed.layers, *hosted.on_cpu}))
        self._sources = {layer: layout.allocate(torch.device("cpu")) for layer in layers}
        count = streamed.slots if streamed.layers else 0
        self._slots = [layout.allocate(device) for _ in range(count)]
        self._unpin: list[Callable[[], None]] = []
        if pin is not None:
            self._unpin = [pin(self._sources[layer]) for layer in streamed.layers]
        vectors = {layer: layout.allocate_vectors(device) for layer in layers}
        self.stored: dict[int, Modules] = {
            layer: layout.modules(source, vectors[layer]) for layer, source in self._sources.items()
        }
        self.used: dict[int, Modules] = self.stored | {
            layer: layout.modules(self.slot(layer), vectors[layer]) for layer in streamed.layers
        }

    @property
    def slots_bytes(self) -> int:
        """Memory of the slots."""
        return sum(slot.nbytes for slot in self._slots)

    @property
    def host_bytes(self) -> int:
        """Memory of the layers in the host."""
        return sum(source.nbytes for source in self._sources.values())

    def prime(self) -> None:
        """Fill the slots for the first sweep."""
        for layer in self._streamed.layers[: self._streamed.slots]:
            self.load(layer)

    def load(self, layer: int) -> None:
        """Bring a layer into its slot, on the current stream if there is one."""
        self.slot(layer).copy_(self._sources[layer], non_blocking=True)

    def slot(self, layer: int) -> Tensor:
        """The slot that a layer goes through: [bytes] uint8."""
        return self._slots[self._streamed.slot_of(layer)]

    def close(self) -> None:
        """Let the device forget the host's memory; nothing may be in flight."""
        for unpin in self._unpin:
            unpin()
        self._unpin = []

"""Layers, and MLPs, that lie beside the accelerator, for the CPU or to come to it."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tandem.devices.host_memory import bulk_memory
from tandem.models.disk_stream import DiskStream
from tandem.models.disk_weights import DiskWeights, Pin
from tandem.models.divided_layer import DividedLayer
from tandem.models.in_slots import Moving
from tandem.models.weight_layout import LayerLayout, Modules
from tandem.plan.program import Part
from tandem.plan.sweep_layers import SweepLayers
from tandem.spec.errors import ModelError

_PARTS = (Part.KEYS_VALUES, Part.QUERIES, Part.PRE, Part.POST)
_NO_LOADS = dict[Part, int]((part, 0) for part in _PARTS)


class WeightStream:
    """Layers in host memory, and the slots on the accelerator that streamed ones go through, with
    those that are read from disk before.

    A layer's matrices, or of some layers the MLP's or some experts', are one piece of memory, in
    the host and in a slot, so that they come in one copy. Its norms and biases are small, and
    resident. Slots are filled in turn, whatever comes; only of an even number, all brought in each
    sweep, does each layer always come to the same one.

    Args:
        hosted: streamed layers, and those that are always computed on the CPU; of both, some are
            in files.
        layouts: of these layers' weights, or of their MLPs'.
        device: of the slots.
        pin: makes what is copied known to the device.
        disk: the layers in files; None if there are none.
        divided: how streamed layers lie once they are filled, if the CPU computes columns of their
            MLPs; None: as they are.

    Attributes:
        stored: by layer, its weights in host memory: what a checkpoint is read into.
        moving: streamed layers, as the accelerator sees them in each slot.
        mlps: of them, those of which only the MLP comes, or some of its experts.
    """

    def __init__(
        self,
        hosted: SweepLayers,
        layouts: Mapping[int, LayerLayout],
        device: torch.device,
        pin: Pin | None = None,
        disk: DiskWeights | None = None,
        divided: Mapping[int, DividedLayer] | None = None,
    ) -> None:
        streamed = hosted.streamed
        self._streamed = streamed
        self._reads = hosted.reads
        self._read_on_cpu = hosted.read_on_cpu
        self.mlps: tuple[int, ...] = streamed.mlps
        self._layouts = layouts
        self._disk = None if disk is None else DiskStream(disk)
        self._divided = dict(divided or {})
        layers = sorted({*streamed.layers, *hosted.on_cpu} - {*hosted.on_disk})
        self._sources = {layer: layouts[layer].allocate(torch.device("cpu")) for layer in layers}
        largest = max((layouts[layer].size_bytes for layer in streamed.layers), default=0)
        self._slots = [bulk_memory((largest,), torch.uint8, device) for _ in range(streamed.slots)]
        self._slot_of: dict[int, int] = {}  # of layers that have come, until their next load
        self._loads = dict[Part, int](_NO_LOADS)
        self._unpin: dict[int, Callable[[], None]] = {}
        if pin is not None:
            copied = [layer for layer in layers if layer in streamed.layers]
            self._unpin = {layer: pin(self._sources[layer]) for layer in copied}
        vectors = {layer: layouts[layer].allocate_vectors(device) for layer in layers}
        self.stored: dict[int, Modules] = {
            layer: layouts[layer].modules(source, vectors[layer])
            for layer, source in self._sources.items()
        }
        if disk is not None:
            vectors |= disk.vectors
        self.moving: Moving[Modules] = Moving(
            {
                layer: [
                    self._modules(layer, self._part(slot, layer), vectors[layer])
                    for slot in range(streamed.slots)
                ]
                for layer in streamed.layers
            },
            lambda layer: self._slot_of.get(layer, 0),  # before an MLP's load, the rest is used
        )

    def _modules(self, layer: int, memory: Tensor, vectors: list[Tensor]) -> Modules:
        divided = self._divided.get(layer)
        if divided is not None:
            return divided.modules(memory, self.stored[layer])
        return self._layouts[layer].modules(memory, vectors)

    def columns(self) -> dict[int, Modules]:
        """By layer whose MLP is divided, its weights in host memory; after `divide`."""
        return {
            layer: divided.modules(self._sources[layer], self.stored[layer])
            for layer, divided in self._divided.items()
        }

    @property
    def divided_layers(self) -> tuple[int, ...]:
        """Those whose MLPs are."""
        return tuple(self._divided)

    def divide(self) -> None:
        """Bring layers that have been filled into the order in which they come; `stored` is void
        then, but for norms and biases.
        """
        for layer, divided in self._divided.items():
            divided.divide(self._sources[layer], self.stored[layer])
        for divided in {*self._divided.values()}:
            divided.copy_biases()

    @property
    def slots_bytes(self) -> int:
        """Memory of the slots."""
        return sum(slot.nbytes for slot in self._slots)

    @property
    def host_bytes(self) -> int:
        """Memory of the layers in the host."""
        return sum(source.nbytes for source in self._sources.values())

    @property
    def pinned_bytes(self) -> int:
        """Of them, what is known to the accelerator: layers that are copied there."""
        return sum(self._sources[layer].nbytes for layer in self._unpin)

    def prime(self) -> None:
        """Fill the slots for the first sweep; nothing may be in flight.

        Raises:
            ModelError: a file cannot be read, or has changed.
        """
        self._loads = dict[Part, int](_NO_LOADS)
        if self._disk is None:
            for layer in self._streamed.first:
                self.load(layer)
            return
        try:
            self._disk.begin()
            for layer in self._streamed.first:
                if layer in self._streamed.on_disk:
                    self._disk.reach(layer)
                self.load(layer, wait=True)  # has ended before its place is let go
            if self._reads:
                self._disk.reach(self._reads[0])
        except RuntimeError as error:
            raise ModelError(str(error)) from None

    def computed_from_disk(self) -> Moving[Modules] | None:
        """Layers on disk that the CPU computes, in each slot of host memory; None if there are
        none. Once it is known what they are read from.
        """
        if self._disk is None or not self._read_on_cpu:
            return None
        slots = self._disk.in_slots()
        return Moving({n: slots[n] for n in self._read_on_cpu}, self._disk.slot_of)

    def load(self, layer: int, part: Part = Part.NONE, *, wait: bool = False) -> None:
        """Bring a layer into the slot whose turn it is, on the current stream if there is one.

        Args:
            part: `PRE` or `POST`: what that stage reads; `KEYS_VALUES`, `QUERIES`: what `PRE` does,
                in two parts. Each comes in the same order, so that a layer's parts come to the same
                slot. `COLUMNS`: all but the CPU's columns; `CPU_COLUMNS`: these, to where the layer
                is. Any other: all that comes of the layer.
        """
        source = self._source(layer)
        for place, (first, end) in zip(
            self.places(layer, part), self._extents(layer, part), strict=True
        ):
            place.copy_(source[first:end], non_blocking=not wait)
            if wait:
                place[:1].cpu()  # from where it was read to on the GPU, it has but been launched
        if part is Part.CPU_COLUMNS:
            return
        if part is not Part.POST:
            self._slot_of[layer] = self._next_slot(part)
        for each in (part,) if part in _PARTS else _PARTS:
            self._loads[each] += 1

    def read(self) -> None:
        """Wait for the next layer on disk, in place of the one that was copied first.

        Raises:
            RuntimeError: a file cannot be read, or has changed.
        """
        self._from_disk.follow()

    def let_go(self) -> Tensor:
        """Host memory that the next `read` gives up: [bytes] uint8."""
        return self._from_disk.oldest()

    def places(self, layer: int, part: Part) -> list[Tensor]:
        """Where a layer, or that part of it, lies that is brought now: [bytes] uint8 each."""
        there = part is Part.CPU_COLUMNS
        slot = self._part(self._slot_of[layer] if there else self._next_slot(part), layer)
        return [slot[first:end] for first, end in self._extents(layer, part)]

    def _extents(self, layer: int, part: Part) -> list[tuple[int, int]]:
        layout, divided = self._layouts[layer], self._divided.get(layer)
        if divided is not None and part in (Part.COLUMNS, Part.CPU_COLUMNS):
            return divided.comes if part is Part.COLUMNS else divided.left_out
        extents = {
            Part.KEYS_VALUES: layout.keys_values,
            Part.QUERIES: layout.queries,
            Part.PRE: layout.projections,
            Part.POST: layout.others,
        }
        return extents.get(part, [(0, layout.size_bytes)])

    def _next_slot(self, part: Part) -> int:
        return self._loads[part if part in _PARTS else Part.PRE] % self._streamed.slots

    def _part(self, slot: int, layer: int) -> Tensor:
        """Of a slot, what the layer takes: an MLP alone may leave a part."""
        return self._slots[slot][: self._layouts[layer].size_bytes]

    def _source(self, layer: int) -> Tensor:
        if layer in self._streamed.on_disk:
            return self._from_disk.place(layer)
        return self._sources[layer]

    @property
    def _from_disk(self) -> DiskStream:
        assert self._disk is not None
        return self._disk

    def close(self) -> None:
        """Let the device forget the host's memory; nothing may be in flight."""
        for unpin in self._unpin.values():
            unpin()
        self._unpin = {}

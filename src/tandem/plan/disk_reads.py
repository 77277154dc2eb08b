"""A sweep's reads of layers on disk, for the CPU or on their way to the accelerator (ADR 0015).

A layer is read into a slot in host memory, and computed or copied from there. Like the
accelerator's slots, the host's are filled again as soon as their layer has been used, at the end of
a sweep for the next. Layers have no fixed slot here: who uses one looks where it is, so any number
of layers goes round. Slots are given back in the order in which they were filled, so layers are
read in the order in which a sweep is done with them, the CPU's among those that are copied.
"""

from tandem.plan.disk_slots import slots_in_use
from tandem.plan.program import BufferRef, OpKind, Queue, SignalRef, buffer, signal
from tandem.plan.template_builder import HOST_WEIGHTS, TemplateBuilder


class DiskReads:
    """Adds reads to a template, and says what those who use layers wait for.

    Args:
        layers: on disk, as a sweep is done with them (`SweepLayers.reads`).
    """

    def __init__(self, builder: TemplateBuilder, layers: tuple[int, ...]) -> None:
        self._b = builder
        self._layers = layers
        self._ahead = slots_in_use(len(layers))

    def source(self, layer: int) -> tuple[tuple[SignalRef, ...], tuple[BufferRef, ...]]:
        """What the first use of `layer` waits for and reads in host memory; nothing if it is not on
        disk. Its read is `slots` reads back, which of the first layers is the sweep before's.
        """
        if layer not in self._layers:
            return (), ()
        read = self._b.counts.get(Queue.DISK, 0) + 1 - self._ahead
        return (signal(Queue.DISK, read),), (_in_host(layer),)

    def used(self, layer: int, done: SignalRef) -> None:
        """After the last use of `layer`, if it is on disk: read the next one into its slot."""
        if layer not in self._layers:
            return
        at = self._layers.index(layer) + self._ahead
        following = self._layers[at % len(self._layers)]
        self._b.add(
            OpKind.READ, Queue.DISK, layer=following, waits=(done,),
            writes=tuple(dict.fromkeys((_in_host(following), _in_host(layer)))),
        )  # fmt: skip


def _in_host(layer: int) -> BufferRef:
    """A layer's bytes in whichever slot; a read makes them and takes another's place."""
    return buffer(HOST_WEIGHTS, -1, layer)

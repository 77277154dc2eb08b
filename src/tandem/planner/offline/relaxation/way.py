"""Ways to run blocks of which nothing but shares is open."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from tandem.plan.offline import QuantizedLayers

Lends = Literal["none", "some", "all", "columns", "maps"]
_LENDS: tuple[Lends, ...] = ("some", "all")


@dataclass(frozen=True, slots=True)
class BlockWay:
    """What is done with layers that do not stay on the accelerator.

    Attributes:
        streams: whether any is streamed, through slots that take their room however few pass
            through them; None: either way, by an average of no slots and all.
        reads: whether any of them is read from disk, through slots of host memory.
        lends: which of them the CPU computes in passes: all but those that stay in the slots, or
            any number while all others come; or columns of all MLPs that are streamed from host
            memory, and with `maps` those of attention of the same layers.
        mlps: only their MLPs are streamed, but of those on disk, and these are what the CPU
            computes.
    """

    streams: bool | None
    reads: bool = False
    lends: Lends = "none"
    mlps: bool = False

    @property
    def lends_layers(self) -> bool:
        """Whether the CPU computes whole layers, or whole MLPs."""
        return self.lends in _LENDS

    @property
    def divides(self) -> bool:
        """Whether the CPU computes columns of MLPs."""
        return self.lends in ("columns", "maps")


def block_ways(
    bits: QuantizedLayers, *, reads: bool, lends: bool, divides: bool
) -> Iterator[BlockWay]:
    """All there are, each once.

    Args:
        reads: some may be read from disk.
        lends: the CPU may compute layers, or MLPs. divides: likewise, columns of MLPs.
    """
    choices = (False, True) if reads else (False,)
    if bits == "streamed":  # layers may stay in slots as well
        yield from (BlockWay(None, read) for read in choices)
        return
    for streams, read in product((False, True), choices):
        if streams or not read:
            yield BlockWay(streams, read)
    if lends:
        for mlps, how, read in product((True, False), _LENDS, choices):
            yield BlockWay(True, read, how, mlps)
    if divides and bits == "none":
        for mlps, read in product((True, False), choices):
            yield BlockWay(True, read, "columns", mlps)
        yield from (BlockWay(True, read, "maps") for read in choices)

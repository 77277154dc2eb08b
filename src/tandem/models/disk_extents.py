"""What a layer on disk is read from: runs of bytes in files, and their places in memory."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tandem.plan.disk_slots import BLOCK_BYTES

_ALIGNMENT = 4  # of the widest elements, in memory


@dataclass(frozen=True, slots=True)
class Extent:
    """A run of bytes in a file, and where in the layer's memory it belongs."""

    file: Path
    offset: int
    size_bytes: int
    target: int


LayerExtents = tuple[Extent, ...]


def base_of(extents: LayerExtents) -> int:
    """Where in a block of memory the layer should begin, so that as many bytes as possible lie
    there as they lie in blocks of their files: those need no copy after a direct read. Elements
    stay aligned.
    """
    sizes: Counter[int] = Counter()
    for extent in extents:
        sizes[(extent.offset - extent.target) % BLOCK_BYTES] += extent.size_bytes
    aligned = [base for base in sizes if base % _ALIGNMENT == 0]
    return max(aligned, key=lambda base: (sizes[base], -base), default=0)


def merged(extents: Iterable[Extent]) -> LayerExtents:
    """The same bytes in as few runs, in order of their files."""
    runs: list[Extent] = []
    for extent in sorted(extents, key=lambda e: (str(e.file), e.offset)):
        last = runs[-1] if runs else None
        if (
            last is not None
            and last.file == extent.file
            and last.offset + last.size_bytes == extent.offset
            and last.target + last.size_bytes == extent.target
        ):
            size = last.size_bytes + extent.size_bytes
            runs[-1] = Extent(last.file, last.offset, size, last.target)
        else:
            runs.append(extent)
    return tuple(runs)

"""What was measured of a host, an accelerator, their link and disks. Rates are medians."""

import math
from dataclasses import dataclass, fields
from typing import Literal

from tandem.profiling.surface import Curve, Surface

BoundBy = Literal["memory", "cores"]
"""What the CPU's work is bound by where nothing else is busy."""
BusyThing = Literal["copies in memory", "dequantization", "link", "disks"]


SharedThing = Literal["attention", "link both ways", "disks"]
"""What shares the host's memory in a step."""


class _Rates:
    """Numbers that must all be finite and above 0."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            value: object = getattr(self, field.name)
            if isinstance(value, int | float) and not (math.isfinite(value) and value > 0):
                raise ValueError(f"{field.name} must be finite and above 0, not {value}")


@dataclass(frozen=True, slots=True)
class MemoryRates(_Rates):
    """Of the host's memory, beyond the caches, by all threads.

    Attributes:
        copy_bytes_per_s: bytes copied, each read once and written once.
    """

    read_bytes_per_s: float
    write_bytes_per_s: float
    copy_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ThreadRates(_Rates):
    """Plain reading, decode attention, and products of one row."""

    read_bytes_per_s: float
    attention_bytes_per_s: float
    linear_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class ThreadPoint(_Rates):
    """What so many threads reach.

    Attributes:
        alone: while nothing else is busy.
        beside_link: while the link to the accelerator is; None: there is none.
    """

    threads: int
    alone: ThreadRates
    beside_link: ThreadRates | None

    @property
    def busiest(self) -> ThreadRates:
        """By which numbers of threads are compared: as batch jobs have them, which keep the link
        busy, where that was measured.
        """
        return self.alone if self.beside_link is None else self.beside_link


@dataclass(frozen=True, slots=True)
class LinearTimes:
    """Linear maps with weights of one kind (`float16`, `int8/64`): seconds by elements of the
    weight, and rows.
    """

    kind: str
    surface: Surface


@dataclass(frozen=True, slots=True)
class AttentionTimes(_Rates):
    """Decode attention of one layer over KV pages of one type: seconds by rows, and context.

    Attributes:
        kv_elements: of a token's keys and values in the measured shape.
    """

    kind: str
    kv_elements: int
    surface: Surface


@dataclass(frozen=True, slots=True)
class PromptTimes(_Rates):
    """Attention of one layer among the tokens of whole prompts, whose keys and values lie in pages
    of one type: seconds by prompts, and tokens of each.

    Attributes:
        pair_flops: in the measured shape, of a query token and a key that it sees.
    """

    kind: str
    pair_flops: int
    surface: Surface


@dataclass(frozen=True, slots=True)
class CodeRates(_Rates):
    """To few bits and back: bytes of the floating-point side per second (the host's: float32)."""

    kind: str
    quantize_bytes_per_s: float
    dequantize_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class StartTimes(_Rates):
    """From handing work to the threads to its known end, where the work is nothing."""

    spinning_s: float
    asleep_s: float


@dataclass(frozen=True, slots=True)
class Contention(_Rates):
    """The CPU's work while something else is busy: both rates, alone and together.

    Attributes:
        work: what the CPU's threads do, in words. load: what else is busy, likewise.
        bound_by, busy: the same, as far as others ask.
        work_alone_per_s, work_beside_per_s: bytes of keys and values of attention, FLOPs of
            products.
    """

    work: str
    load: str
    bound_by: BoundBy
    busy: BusyThing
    work_alone_per_s: float
    work_beside_per_s: float
    load_alone_bytes_per_s: float
    load_beside_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class AtOnce(_Rates):
    """One of several that went on at once, to compare with what virtual time makes of them.

    Attributes:
        alone_bytes_per_s, together_bytes_per_s: of keys and values; of each direction of the link,
            both of which are copied over in either case; of disks, all together.
    """

    thing: SharedThing
    alone_bytes_per_s: float
    together_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class HostMeasurements:
    """The host. `heads` is the attention's shape, as query heads/KV heads/head size."""

    threads: int
    memory: MemoryRates
    sweep: tuple[ThreadPoint, ...]
    linear: tuple[LinearTimes, ...]
    heads: str
    attention: tuple[AttentionTimes, ...]
    codes: tuple[CodeRates, ...]
    start: StartTimes
    contention: tuple[Contention, ...]


@dataclass(frozen=True, slots=True)
class LinkDirection(_Rates):
    """Copies one way: seconds by bytes, from pinned and pageable host memory.

    Attributes:
        both_bytes_per_s: pinned, while the other direction copies too.
    """

    pinned: Curve
    pageable: Curve
    both_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class AcceleratorMeasurements(_Rates):
    """The accelerator and its link.

    Attributes:
        copy_bytes_per_s: within its memory, bytes read plus bytes written.
        launch_s: from the host's call to the known end of a kernel without work.
        kernel_s: per kernel, when many without work follow each other.
        linear: of element types, and of codes as far as weights are kept so.
        heads: attention's shape, as the host's.
        codes: of weights, and (`kv int8`) of keys and values that are appended to pages and read
            back from there; bytes of 16 bits each.
    """

    name: str
    memory_bytes: int
    copy_bytes_per_s: float
    launch_s: float
    kernel_s: float
    linear: tuple[LinearTimes, ...]
    heads: str
    attention: tuple[AttentionTimes, ...]
    prompts: tuple[PromptTimes, ...]
    codes: tuple[CodeRates, ...]
    h2d: LinkDirection
    d2h: LinkDirection


@dataclass(frozen=True, slots=True)
class DiskMeasurements(_Rates):
    """A disk, read past the page cache.

    Attributes:
        folder: as it was given.
        way: how the highest rate was reached.
        together_bytes_per_s: while all other disks given are read as well.
    """

    folder: str
    one_reader_bytes_per_s: float
    bytes_per_s: float
    way: str
    together_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Striping(_Rates):
    """Several disks that read parts of the same at once, beside the CPU's work.

    Attributes:
        shares: of the bytes, one per disk, so that all end at the same time; they sum to 1.
        bytes_per_s: of all together.
    """

    shares: tuple[float, ...]
    bytes_per_s: float

    def __post_init__(self) -> None:
        _Rates.__post_init__(self)
        if not all(share > 0 for share in self.shares) or abs(sum(self.shares) - 1) > 1e-6:
            raise ValueError(f"shares must be above 0 and sum to 1, not {self.shares}")

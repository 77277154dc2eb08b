"""An accelerator and its link by the host's clock: the same for any device that has an end."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tandem.probes.effort import Effort
from tandem.probes.kernel_cases import PageProbe
from tandem.probes.linear_cases import WeightKind
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    AttentionTimes,
    CodeRates,
    LinearTimes,
    LinkDirection,
    PromptTimes,
)
from tandem.profiling.surface import Curve, Surface
from tandem.spec.kv_type import CodeType, KVType

_KERNELS = 200
_HALF_BYTES = 2
_APPENDED = 8192  # tokens: of fewer, launching would be a part of what is measured
_WAYS = {"pinned": True, "pageable": False}


class ProbedAccelerator(Protocol):
    """What is probed. Each sample is the time from submitting something to its known end."""

    name: str
    memory_bytes: int

    def copying(self, size_bytes: int) -> Sample:
        """So many bytes within its memory, read and written once each."""
        ...

    def kernels(self, count: int) -> Sample:
        """So many kernels without work, one after the other."""
        ...

    def products(self, kind: WeightKind, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """A product of a square weight, and each number of rows; no cache holds the weight."""
        ...

    def coding(self, kind: WeightKind, side: int) -> tuple[Sample, Sample]:
        """A square weight to few bits, and from there to 16 bits, as kernels multiply by."""
        ...

    def decoding(
        self, pages: PageProbe, sizes: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], Sample]:
        """Decode attention of one layer: so many rows, each over so many tokens."""
        ...

    def reading_prompts(
        self, pages: PageProbe, sizes: Sequence[tuple[int, int]]
    ) -> Mapping[tuple[int, int], Sample]:
        """Causal attention of one layer: so many prompts, of so many tokens each."""
        ...

    def coding_pages(self, pages: PageProbe, tokens: int) -> tuple[Sample, Sample]:
        """Keys and values of so many tokens into pages of codes, and from there into pages of 16
        bits.
        """
        ...

    def crossings(
        self, sizes: Sequence[int], *, to_device: bool, pinned: bool
    ) -> Mapping[int, Sample]:
        """Copies of each size over the link."""
        ...

    def crossing_both(self, size_bytes: int) -> Sample:
        """So many bytes both ways at once, from pinned memory."""
        ...


@dataclass(frozen=True, slots=True)
class LinkTimes:
    """What submitting and crossing take.

    Attributes:
        launch_s: from a kernel without work to its known end. kernel_s: of one of many.
        h2d, d2h: to the accelerator, and from it.
    """

    launch_s: float
    kernel_s: float
    h2d: LinkDirection
    d2h: LinkDirection


def measure_accelerator(probed: ProbedAccelerator, effort: Effort) -> AcceleratorMeasurements:
    """Its memory, products, attention, launches, and both directions of its link."""
    size = effort.link_bytes[-1]
    copied_s = median_seconds({"copy": probed.copying(size)}, effort.rounds)["copy"]
    link = measure_link(probed, effort)
    # a launch is priced by itself: of what a fast memory takes for a copy, it is some percents
    copy_s = max(copied_s - link.launch_s, copied_s / 2)
    return AcceleratorMeasurements(
        name=probed.name,
        memory_bytes=probed.memory_bytes,
        copy_bytes_per_s=2 * size / copy_s,
        launch_s=link.launch_s,
        kernel_s=link.kernel_s,
        linear=tuple(_linear(probed, effort, kind) for kind in effort.card_kinds),
        heads=str(effort.heads),
        attention=tuple(_attention(probed, effort, kv) for kv in effort.kv),
        prompts=tuple(_prompts(probed, effort, kv) for kv in effort.kv),
        codes=_codes(probed, effort, link.kernel_s),
        h2d=link.h2d,
        d2h=link.d2h,
    )


def measure_link(probed: ProbedAccelerator, effort: Effort) -> LinkTimes:
    """Of `measure_accelerator`, what does not depend on any maths: seconds, not a minute."""
    samples = {"launch": probed.kernels(1), "kernels": probed.kernels(_KERNELS)}
    found = median_seconds(samples, effort.rounds)
    both = {"both": probed.crossing_both(effort.link_bytes[-1])}
    both_s = median_seconds(both, effort.rounds)["both"]
    return LinkTimes(
        launch_s=found["launch"],
        kernel_s=found["kernels"] / _KERNELS,
        h2d=_direction(probed, effort, both_s, to_device=True),
        d2h=_direction(probed, effort, both_s, to_device=False),
    )


def copy_to_device(probed: ProbedAccelerator, size_bytes: int) -> Callable[[], int]:
    """A copy from pinned memory that returns its bytes once it has ended."""
    sample = probed.crossings((size_bytes,), to_device=True, pinned=True)[size_bytes]

    def copy() -> int:
        sample(0)
        return size_bytes

    return copy


def copy_both_ways(probed: ProbedAccelerator, size_bytes: int) -> Callable[[], int]:
    """Likewise, as many bytes back at once; returns those of one direction."""
    sample = probed.crossing_both(size_bytes)

    def copy() -> int:
        sample(0)
        return size_bytes

    return copy


def _linear(probed: ProbedAccelerator, effort: Effort, kind: WeightKind) -> LinearTimes:
    samples: dict[tuple[int, int], Sample] = {}
    for side in effort.sides:
        for rows, sample in probed.products(kind, side, effort.card_rows).items():
            samples[side, rows] = sample
    found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[side, rows] for rows in effort.card_rows) for side in effort.sides)
    axes = tuple(float(side * side) for side in effort.sides), tuple(map(float, effort.card_rows))
    return LinearTimes(str(kind), Surface(*axes, times))


def _attention(probed: ProbedAccelerator, effort: Effort, kv: KVType) -> AttentionTimes:
    axes = effort.batches, effort.contexts
    found = _surface(axes, lambda sizes: probed.decoding(effort.pages(kv), sizes), effort.rounds)
    return AttentionTimes(str(kv), effort.heads.key_elements, found)


def _prompts(probed: ProbedAccelerator, effort: Effort, kv: KVType) -> PromptTimes:
    axes = effort.prompts, effort.prompt_tokens
    found = _surface(
        axes, lambda sizes: probed.reading_prompts(effort.pages(kv), sizes), effort.rounds
    )
    return PromptTimes(str(kv), effort.heads.pair_flops, found)


def _surface(
    axes: tuple[Sequence[int], Sequence[int]],
    samples: Callable[[Sequence[tuple[int, int]]], Mapping[tuple[int, int], Sample]],
    rounds: int,
) -> Surface:
    """Every combination of two sizes."""
    found = median_seconds(samples([(a, b) for a in axes[0] for b in axes[1]]), rounds)
    times = tuple(tuple(found[a, b] for b in axes[1]) for a in axes[0])
    return Surface(tuple(map(float, axes[0])), tuple(map(float, axes[1])), times)


def _codes(probed: ProbedAccelerator, effort: Effort, kernel_s: float) -> tuple[CodeRates, ...]:
    """Of a square weight, and of keys and values in pages.

    Args:
        kernel_s: that a kernel costs beside its work, which is priced by itself.
    """
    side = max(effort.sides)
    weights = {
        str(kind): probed.coding(kind, side) for kind in effort.kinds if kind.format is not None
    }
    pages = {
        f"kv {kv}": probed.coding_pages(effort.pages(kv), _APPENDED)
        for kv in effort.kv
        if isinstance(kv, CodeType)
    }
    elements = side * side, _APPENDED * effort.heads.key_elements
    return (
        *_rates(weights, elements[0] * _HALF_BYTES, effort.rounds, kernel_s),
        *_rates(pages, elements[1] * _HALF_BYTES, effort.rounds, kernel_s),
    )


def _rates(
    ways: Mapping[str, tuple[Sample, Sample]], size_bytes: float, rounds: int, kernel_s: float
) -> list[CodeRates]:
    samples = {(name, way): each for name, both in ways.items() for way, each in enumerate(both)}
    found = {
        key: max(seconds - kernel_s, seconds / 2)
        for key, seconds in median_seconds(samples, rounds).items()
    }
    return [
        CodeRates(name, size_bytes / found[name, 0], size_bytes / found[name, 1]) for name in ways
    ]


def _direction(
    probed: ProbedAccelerator, effort: Effort, both_s: float, *, to_device: bool
) -> LinkDirection:
    samples: dict[tuple[str, int], Sample] = {}
    for name, pinned in _WAYS.items():
        crossings = probed.crossings(effort.link_bytes, to_device=to_device, pinned=pinned)
        for size, sample in crossings.items():
            samples[name, size] = sample
    found = median_seconds(samples, effort.rounds)
    sizes = tuple(map(float, effort.link_bytes))
    curves = (Curve(sizes, tuple(found[name, n] for n in effort.link_bytes)) for name in _WAYS)
    return LinkDirection(*curves, both_bytes_per_s=effort.link_bytes[-1] / both_s)

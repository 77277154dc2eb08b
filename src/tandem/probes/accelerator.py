"""An accelerator and its link by the host's clock: the same for any device that has an end."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tandem.probes.effort import Effort
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample
from tandem.profiling.measurements import AcceleratorMeasurements, LinearTimes, LinkDirection
from tandem.profiling.surface import Curve, Surface
from tandem.spec.dtype import DType

_KERNELS = 200
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

    def products(self, dtype: DType, side: int, rows: Sequence[int]) -> Mapping[int, Sample]:
        """A product of a square weight, and each number of rows; no cache holds the weight."""
        ...

    def crossings(
        self, sizes: Sequence[int], *, to_device: bool, pinned: bool
    ) -> Mapping[int, Sample]:
        """Copies of each size over the link."""
        ...

    def crossing_both(self, size_bytes: int) -> Sample:
        """So many bytes both ways at once, from pinned memory."""
        ...


def measure_accelerator(probed: ProbedAccelerator, effort: Effort) -> AcceleratorMeasurements:
    """Its memory, products, launches, and both directions of its link."""
    size = effort.link_bytes[-1]
    found = median_seconds(
        {
            "copy": probed.copying(size),
            "launch": probed.kernels(1),
            "kernels": probed.kernels(_KERNELS),
        },
        effort.rounds,
    )
    both_s = median_seconds({"both": probed.crossing_both(size)}, effort.rounds)["both"]
    return AcceleratorMeasurements(
        name=probed.name,
        memory_bytes=probed.memory_bytes,
        copy_bytes_per_s=2 * size / found["copy"],
        launch_s=found["launch"],
        kernel_s=found["kernels"] / _KERNELS,
        linear=tuple(_linear(probed, effort, dtype) for dtype in DType),
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


def _linear(probed: ProbedAccelerator, effort: Effort, dtype: DType) -> LinearTimes:
    samples: dict[tuple[int, int], Sample] = {}
    for side in effort.sides:
        for rows, sample in probed.products(dtype, side, effort.rows).items():
            samples[side, rows] = sample
    found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[side, rows] for rows in effort.rows) for side in effort.sides)
    axes = tuple(float(side * side) for side in effort.sides), tuple(map(float, effort.rows))
    return LinearTimes(dtype.value, Surface(*axes, times))


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

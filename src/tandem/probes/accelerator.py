"""An accelerator and its link, by the host's clock: the same code for any device that has an end.

Sizes are such that submitting is hidden by the work, except where submitting is what is measured.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from tandem.probes.effort import Effort
from tandem.probes.rounds import median_seconds
from tandem.probes.timing import Sample, timed
from tandem.profiling.measurements import AcceleratorMeasurements, LinearTimes, LinkDirection
from tandem.profiling.surface import Curve, Surface
from tandem.spec.dtype import DType

_KERNELS = 200
_COPIES = 4  # of weights, beyond the accelerator's cache where they are large


class ProbeDevice(Protocol):
    """What is probed."""

    device: torch.device
    name: str
    memory_bytes: int

    def pinned(self, size_bytes: int) -> Tensor:
        """uint8 [size_bytes] in host memory that the device may access."""
        ...

    def synchronize(self) -> None:
        """Wait until all that was submitted has ended."""
        ...

    def aside(self) -> AbstractContextManager[object]:
        """What is submitted within may run beside the rest."""
        ...


def measure_accelerator(probed: ProbeDevice, effort: Effort) -> AcceleratorMeasurements:
    """Its memory, products, launches, and both directions of its link."""
    size = effort.link_bytes[-1]
    source = torch.ones(size, dtype=torch.uint8, device=probed.device)
    target = torch.zeros_like(source)
    tiny = torch.zeros(1, device=probed.device)

    def ended(call: Callable[[], object], count: int = 1) -> Sample:
        def run() -> None:
            for _ in range(count):
                call()
            probed.synchronize()

        return lambda _: timed(run)

    found = median_seconds(
        {
            "copy": ended(lambda: target.copy_(source)),
            "launch": ended(lambda: tiny.add_(1)),
            "kernels": ended(lambda: tiny.add_(1), _KERNELS),
        },
        effort.rounds,
    )
    both_s = _both_directions(probed, effort)
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


def copy_to_device(probed: ProbeDevice, size_bytes: int) -> Callable[[], int]:
    """A copy from pinned memory that returns its bytes once it has ended."""
    source = probed.pinned(size_bytes)
    target = torch.empty(size_bytes, dtype=torch.uint8, device=probed.device)

    def copy() -> int:
        target.copy_(source, non_blocking=True)
        probed.synchronize()
        return size_bytes

    return copy


def _linear(probed: ProbeDevice, effort: Effort, dtype: DType) -> LinearTimes:
    kind = getattr(torch, dtype)
    samples: dict[tuple[int, int], Sample] = {}
    for side in effort.sides:
        weights = torch.randn(_COPIES, side, side, device=probed.device).to(kind)
        for rows in effort.rows:
            x = torch.randn(rows, side, device=probed.device).to(kind)
            samples[side, rows] = _product(probed, weights, x)
    with torch.inference_mode():
        found = median_seconds(samples, effort.rounds)
    times = tuple(tuple(found[side, rows] for rows in effort.rows) for side in effort.sides)
    axes = tuple(float(side * side) for side in effort.sides), tuple(map(float, effort.rows))
    return LinearTimes(dtype.value, Surface(*axes, times))


def _product(
    probed: ProbeDevice,
    weights: Tensor,  # [copies, side, side]
    x: Tensor,  # [rows, side]
) -> Sample:
    count = len(weights)

    def run() -> None:
        for weight in weights:
            torch.mm(x, weight)
        probed.synchronize()

    return lambda _: timed(run) / count


def _direction(
    probed: ProbeDevice, effort: Effort, both_s: float, *, to_device: bool
) -> LinkDirection:
    largest = effort.link_bytes[-1]
    on_device = torch.ones(largest, dtype=torch.uint8, device=probed.device)
    hosts = {
        "pinned": probed.pinned(largest).fill_(1),
        "pageable": torch.ones(largest, dtype=torch.uint8),
    }
    samples: dict[tuple[str, int], Sample] = {}
    for name, host in hosts.items():
        for size in effort.link_bytes:
            ends = (on_device[:size], host[:size]) if to_device else (host[:size], on_device[:size])
            samples[name, size] = _copying(probed, *ends)
    found = median_seconds(samples, effort.rounds)
    sizes = tuple(map(float, effort.link_bytes))
    curves = (Curve(sizes, tuple(found[name, n] for n in effort.link_bytes)) for name in hosts)
    return LinkDirection(*curves, both_bytes_per_s=largest / both_s)


def _copying(probed: ProbeDevice, target: Tensor, source: Tensor) -> Sample:
    def run() -> None:
        target.copy_(source, non_blocking=True)
        probed.synchronize()

    return lambda _: timed(run)


def _both_directions(probed: ProbeDevice, effort: Effort) -> float:
    """Seconds in which the largest copies one way and the other end, submitted together."""
    size = effort.link_bytes[-1]
    up, down = probed.pinned(size).fill_(1), probed.pinned(size).fill_(1)
    there, back = (torch.ones(size, dtype=torch.uint8, device=probed.device) for _ in range(2))

    def run() -> None:
        there.copy_(up, non_blocking=True)
        with probed.aside():
            down.copy_(back, non_blocking=True)
        probed.synchronize()

    return median_seconds({"both": lambda _: timed(run)}, effort.rounds)["both"]

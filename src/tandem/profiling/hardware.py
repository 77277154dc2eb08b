"""A profile's numbers as a hardware description has them: what is reached, so at efficiency 1."""

from collections.abc import Sequence
from statistics import median

from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    DiskMeasurements,
    HostMeasurements,
    LinearTimes,
    LinkDirection,
)
from tandem.profiling.profile import Profile
from tandem.profiling.shared_memory import shared_memory
from tandem.spec.dtype import DType
from tandem.spec.hardware import TILED_BYTES, AcceleratorFacts, HardwareSpec, HostFacts, LinkFacts
from tandem.spec.kv_type import CodeType

_HALF_BYTES = 2
_PAIR_BYTES, _GROUP = 4, 64  # of scales, and elements that share them
_FLOATS = tuple(dtype.value for dtype in DType)
_TILED = tuple(dtype.value for dtype in DType if dtype.size_bytes == TILED_BYTES)


def measured_hardware(profile: Profile, memory_bytes: int) -> HardwareSpec:
    """A machine with an accelerator, as its profile says.

    Args:
        memory_bytes: the host's.
    """
    measured = profile.accelerator
    assert measured is not None, "the profile has no accelerator"
    return HardwareSpec(
        f"{measured.name}, {measured_host_name(profile)}",
        accelerator_facts(measured),
        link_facts(measured),
        host_facts(profile.host, memory_bytes, profile.disks),
    )


def measured_host_name(profile: Profile) -> str:
    """For people."""
    return f"{profile.machine.cpu} with {profile.host.threads} threads, measured"


def host_facts(
    measured: HostMeasurements, memory_bytes: int, disks: Sequence[DiskMeasurements] = ()
) -> HostFacts:
    """The host. Its cores are left out: what more of them would bring was not measured. Copies over
    the link find as much memory bandwidth beside them as was measured.

    Args:
        disks: which of them holds the weights is not known, so the slowest counts.
    """
    return HostFacts(
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=measured.memory.read_bytes_per_s,
        flops_per_s=max(map(peak_flops_per_s, measured.linear)),
        disk_bytes_per_s=min((disk.bytes_per_s for disk in disks), default=None),
        shared_memory_bandwidth_bytes_per_s=shared_memory(measured).bytes_per_s,
    )


def accelerator_facts(measured: AcceleratorMeasurements) -> AcceleratorFacts:
    """The accelerator, but for what was measured of single kernels (`planner/measured/card.py`)."""
    # a host by itself starts without these
    from tandem.cost.quantized import most_rows_by_codes
    from tandem.profiling.tiles import measured_code_tile, measured_tile

    return AcceleratorFacts(
        memory_bytes=measured.memory_bytes,
        memory_bandwidth_bytes_per_s=measured.copy_bytes_per_s,
        memory_efficiency=1.0,
        compute_efficiency=1.0,
        launch_latency_s=measured.launch_s,
        kernel_overhead_s=measured.kernel_s,
        flops_per_s={
            DType(times.kind): peak_flops_per_s(times)
            for times in measured.linear
            if times.kind in _FLOATS
        },
        tile_rows=measured_tile([times for times in measured.linear if times.kind in _TILED]),
        code_tile_rows=measured_code_tile(
            [times for times in measured.linear if times.kind not in _FLOATS],
            most_rows_by_codes(TILED_BYTES, has_dot=True),
        ),
        quantize_share=_coded_share(measured, [c.quantize_bytes_per_s for c in measured.codes]),
        dequantize_share=_coded_share(measured, [c.dequantize_bytes_per_s for c in measured.codes]),
    )


def _coded_share(measured: AcceleratorMeasurements, rates: Sequence[float]) -> float | None:
    """Of its memory's rate, what is reached by kernels that read elements and write codes, or the
    other way: the median of kinds.

    Args:
        rates: of each of `measured.codes`, by bytes of the elements alone.
    """
    if not rates:
        return None
    moved = (
        rate * (1 + _code_bytes(codes.kind) / _HALF_BYTES)
        for codes, rate in zip(measured.codes, rates, strict=True)
    )
    return median(moved) / measured.copy_bytes_per_s


def _code_bytes(kind: str) -> float:
    """Of an element, its part of a group's scales included: `int4/64`, `kv int8`."""
    name = kind.removeprefix("kv ").partition("/")[0]
    return CodeType(name).bits / 8 + _PAIR_BYTES / _GROUP


def link_facts(measured: AcceleratorMeasurements) -> LinkFacts:
    """The link, from pinned memory: the rate of the largest copy, the time of the smallest."""
    return LinkFacts(
        h2d_bytes_per_s=_largest_rate(measured.h2d),
        d2h_bytes_per_s=_largest_rate(measured.d2h),
        latency_s=max(measured.h2d.pinned.seconds[0], measured.d2h.pinned.seconds[0]),
    )


def peak_flops_per_s(times: LinearTimes) -> float:
    """The highest rate at any size."""
    surface = times.surface
    return max(
        2 * elements * rows / seconds
        for elements, row in zip(surface.first, surface.seconds, strict=True)
        for rows, seconds in zip(surface.second, row, strict=True)
    )


def _largest_rate(direction: LinkDirection) -> float:
    return direction.pinned.sizes[-1] / direction.pinned.seconds[-1]

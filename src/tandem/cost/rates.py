"""Rates that work is divided by."""

from dataclasses import dataclass

from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What one device reaches, efficiencies included.

    Attributes:
        kernel_overhead_s: per kernel, beside its work.
    """

    bytes_per_s: float
    flops_per_s: float
    kernel_overhead_s: float


@dataclass(frozen=True, slots=True)
class LinkRates:
    """One direction of a link."""

    bytes_per_s: float
    latency_s: float


def accelerator_rates(hardware: HardwareSpec, dtype: DType) -> DeviceRates:
    """Reached rates of the accelerator for maths in `dtype`."""
    facts = hardware.accelerator
    return DeviceRates(
        facts.memory_bandwidth_bytes_per_s * facts.memory_efficiency,
        facts.flops_per_s[dtype] * facts.compute_efficiency,
        facts.kernel_overhead_s,
    )


def h2d_rates(hardware: HardwareSpec) -> LinkRates:
    """Host to accelerator."""
    return LinkRates(hardware.link.h2d_bytes_per_s, hardware.link.latency_s)


def d2h_rates(hardware: HardwareSpec) -> LinkRates:
    """Accelerator to host."""
    return LinkRates(hardware.link.d2h_bytes_per_s, hardware.link.latency_s)

"""How much faster one machine can be than another at most."""

from collections.abc import Iterator

from tandem.spec.hardware import HardwareSpec


def largest_speedup(hardware: HardwareSpec, other: HardwareSpec) -> float:
    """No sweep takes less than its time on `other` over this: the largest ratio of any rate, or of
    any fixed cost's inverse.
    """
    pairs = zip(_rates(hardware), _rates(other), strict=True)
    return max(mine / its for mine, its in pairs if its)


def _rates(hardware: HardwareSpec) -> Iterator[float]:
    card, link, host = hardware.accelerator, hardware.link, hardware.host
    yield card.memory_bandwidth_bytes_per_s * card.memory_efficiency
    for kind in sorted(card.flops_per_s):
        yield card.flops_per_s[kind] * card.compute_efficiency
    yield link.h2d_bytes_per_s
    yield link.d2h_bytes_per_s
    yield host.memory_bandwidth_bytes_per_s
    yield host.pool_bytes_per_s
    yield host.flops_per_s
    yield host.disk_bytes_per_s or 0.0
    for cost_s in (card.launch_latency_s, card.kernel_overhead_s, link.latency_s):
        yield 1 / cost_s if cost_s else 0.0

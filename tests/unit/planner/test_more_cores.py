"""What a host would be with another number of cores."""

from dataclasses import replace

import pytest

from tandem.planner.sensitivity import with_cores
from tandem.spec.hardware import HostFacts

HOST = HostFacts(
    memory_bytes=64 << 30,
    memory_bandwidth_bytes_per_s=30e9,
    flops_per_s=0.5e12,
    cores=8,
    peak_memory_bandwidth_bytes_per_s=100e9,
    shared_memory_bandwidth_bytes_per_s=40e9,
)


@pytest.mark.parametrize(
    ("cores", "read", "pool"),
    [(2, 7.5e9, 40e9), (8, 30e9, 40e9), (10, 37.5e9, 40e9), (16, 60e9, 60e9), (64, 80e9, 80e9)],
)
def test_cores_read_in_proportion_as_far_as_memory_gives(
    cores: int, read: float, pool: float
) -> None:
    """Four fifths of the channels' peak; copies keep what there was for them."""
    host = with_cores(HOST, 8, cores)
    assert host.cores == cores
    assert host.memory_bytes == HOST.memory_bytes
    assert host.flops_per_s == pytest.approx(HOST.flops_per_s * cores / 8)
    assert host.memory_bandwidth_bytes_per_s == pytest.approx(read)
    assert host.pool_bytes_per_s == pytest.approx(pool)


@pytest.mark.parametrize("peak", [None, 31e9])
def test_cores_beyond_what_memory_gives_read_no_faster_and_no_slower(peak: float | None) -> None:
    host = with_cores(replace(HOST, peak_memory_bandwidth_bytes_per_s=peak), 8, 16)
    assert host.memory_bandwidth_bytes_per_s == HOST.memory_bandwidth_bytes_per_s

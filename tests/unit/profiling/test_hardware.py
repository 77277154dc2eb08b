"""What a profile's numbers become in a hardware description."""

from dataclasses import replace

import pytest
from tests.support.profiles import (
    LINEAR_FLOPS_PER_S,
    READ_BYTES_PER_S,
    accelerator_measurements,
    host_measurements,
)

from tandem.profiling.hardware import accelerator_facts, host_facts, link_facts
from tandem.profiling.measurements import CodeRates, DiskMeasurements
from tandem.spec.dtype import DType
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import hardware_table, parse_hardware


def test_a_host_reaches_what_was_measured() -> None:
    facts = host_facts(host_measurements(), 16 << 30)
    assert facts.memory_bytes == 16 << 30
    assert facts.memory_bandwidth_bytes_per_s == READ_BYTES_PER_S
    assert facts.flops_per_s == pytest.approx(LINEAR_FLOPS_PER_S)
    assert facts.cores is None


def test_kernels_of_codes_reach_the_median_kinds_share_of_memory() -> None:
    """By what they move: elements of two bytes, codes of one, and a group's scales."""
    rates = (1e9, 9e9, 2e9)
    codes = tuple(CodeRates("int8/64", rate, 10 * rate) for rate in rates)
    facts = accelerator_facts(replace(accelerator_measurements(), codes=codes))
    moved = 1 + (1 + 4 / 64) / 2
    assert facts.quantize_share == pytest.approx(2e9 * moved / 500e9)
    assert facts.dequantize_share == pytest.approx(20e9 * moved / 500e9)


def test_of_several_disks_the_slowest_counts() -> None:
    """Which of them holds the weights is not known."""
    disks = [DiskMeasurements(f"/{rate}", 1e9, rate, "", rate) for rate in (3e9, 2e9, 5e9)]
    assert host_facts(host_measurements(), 16 << 30, disks).disk_bytes_per_s == 2e9
    assert host_facts(host_measurements(), 16 << 30).disk_bytes_per_s is None


def test_a_link_s_latency_is_that_of_its_slower_direction() -> None:
    measured = accelerator_measurements()
    pinned = measured.d2h.pinned
    seconds = (3 * pinned.seconds[0], *pinned.seconds[1:])
    slower = replace(measured.d2h, pinned=replace(pinned, seconds=seconds))
    latency_s = link_facts(replace(measured, d2h=slower)).latency_s
    assert latency_s == 3 * link_facts(measured).latency_s


def test_an_accelerator_and_its_link_reach_what_was_measured() -> None:
    measured = accelerator_measurements()
    facts, link = accelerator_facts(measured), link_facts(measured)
    assert facts.memory_efficiency == facts.compute_efficiency == 1
    assert facts.memory_bandwidth_bytes_per_s == 500e9
    assert set(facts.flops_per_s) == set(DType)
    assert facts.flops_per_s[DType.FLOAT16] == pytest.approx(LINEAR_FLOPS_PER_S)
    assert link.latency_s == 10e-6
    assert link.h2d_bytes_per_s == pytest.approx(20e9, rel=0.01)


@pytest.mark.parametrize("factor", [1e-4, 1.0, 50.0])
def test_descriptions_of_slow_and_fast_kernels_can_be_read_back(factor: float) -> None:
    """Plans keep them. A stand-in in memory copies far faster than it quantizes."""
    measured = accelerator_measurements()
    codes = [
        replace(each, quantize_bytes_per_s=each.quantize_bytes_per_s * factor)
        for each in measured.codes
    ]
    facts = accelerator_facts(replace(measured, codes=tuple(codes)))
    assert facts.quantize_share is not None
    host = host_facts(host_measurements(), 16 << 30)
    machine = HardwareSpec("measured", facts, link_facts(measured), host)
    assert parse_hardware(hardware_table(machine), "the plan") == machine

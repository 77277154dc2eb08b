"""Where a CUDA device's rates come from: a profile, data sheets, or nowhere, and it is said."""

from dataclasses import replace

import pytest
from tests.support.profiles import READ_BYTES_PER_S, accelerator_measurements, profile

from tandem.engine.sizing.cuda_rates import Card, HostSize, cuda_rates
from tandem.profiling.hardware import accelerator_facts, link_facts
from tandem.spec.hardware_file import find_accelerator, known_accelerators, load_accelerator
from tandem.spec.units import GIB

WHY_NOT = "this machine has no profile; run `tandem profile` first"
RTX = Card("NVIDIA GeForce RTX 4090", 24 * GIB)
HERE = HostSize(64 * GIB, 4, 3e9)


def test_a_profile_of_the_card_decides_alone() -> None:
    measured = accelerator_measurements()
    rates = cuda_rates(Card(measured.name, 24 * GIB), HERE, profile(accelerator=True))
    assert rates.hardware is not None
    assert rates.hardware.accelerator == accelerator_facts(measured)
    assert rates.hardware.link == link_facts(measured)
    host = rates.hardware.host
    assert host.memory_bandwidth_bytes_per_s == READ_BYTES_PER_S
    assert (host.memory_bytes, host.disk_bytes_per_s) == (64 * GIB, 3e9)
    assert rates.note == "times are predicted from the profile of 2026-01-02T03:04:05+00:00"


@pytest.mark.parametrize("accelerator", [True, False])
def test_of_a_profile_without_the_card_the_host_is_taken(accelerator: bool) -> None:
    rates = cuda_rates(RTX, HERE, profile(accelerator=accelerator))
    assert rates.hardware is not None
    known = load_accelerator("rtx4090")
    assert rates.hardware.accelerator == replace(known.accelerator, memory_bytes=24 * GIB)
    assert rates.hardware.host.memory_bandwidth_bytes_per_s == READ_BYTES_PER_S
    assert "for the host, and from the data sheet of NVIDIA RTX 4090" in rates.note
    assert "run `tandem profile`" in rates.note


@pytest.mark.parametrize(("cores", "share"), [(4, 0.5), (8, 1.0), (64, 1.0)])
def test_without_a_profile_data_sheets_count_in_proportion_to_the_cores(
    cores: int, share: float
) -> None:
    rates = cuda_rates(RTX, replace(HERE, cores=cores, disk_bytes_per_s=None), WHY_NOT)
    assert rates.hardware is not None
    host = rates.hardware.host  # the usual one has 8 cores
    assert host.memory_bandwidth_bytes_per_s == share * 65e9
    assert host.flops_per_s == share * 1.2e12
    assert host.memory_bytes == 64 * GIB
    assert host.disk_bytes_per_s is None
    assert "data sheets of NVIDIA RTX 4090 and a usual host (Desktop, DDR5)" in rates.note
    assert rates.note.endswith(WHY_NOT)


@pytest.mark.parametrize("accelerator", [True, False])
def test_of_an_unknown_card_nothing_is_known_whatever_the_host(accelerator: bool) -> None:
    card = Card("NVIDIA GeForce RTX 4090 Laptop GPU", 16 * GIB)
    measured = cuda_rates(card, HERE, profile(accelerator=accelerator))
    for rates in (measured, cuda_rates(card, HERE, WHY_NOT)):
        assert rates.hardware is None
        assert "nothing is known of how fast NVIDIA GeForce RTX 4090 Laptop GPU is" in rates.note
        assert "run `tandem profile`" in rates.note


def test_every_packaged_card_is_found_by_its_driver_s_names() -> None:
    for name in known_accelerators():
        card = load_accelerator(name)
        assert card.driver_names, name
        for driver_name in card.driver_names:
            assert find_accelerator(driver_name) == card

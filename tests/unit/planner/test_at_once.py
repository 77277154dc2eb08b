"""What virtual time makes of all that shares the host's memory at once, against sums by head."""

from dataclasses import replace

import pytest
from tests.support.profiles import READ_BYTES_PER_S, profile

from tandem.planner.measured.at_once import predicted_bytes_per_s
from tandem.profiling.measurements import AtOnce
from tandem.profiling.profile import Profile

ATTENTION, LINK, DISKS = (
    AtOnce("attention", 18e9, 9e9),
    AtOnce("link both ways", 15e9, 8e9),
    AtOnce("disks", 3e9, 2e9),
)


def found(*at_once: AtOnce, contention: bool = False) -> Profile:
    whole = profile(accelerator=True)
    host = whole.host if contention else replace(whole.host, contention=())
    return replace(whole, host=host, at_once=at_once)


def test_all_lose_as_much_as_they_ask_for_too_much() -> None:
    rates = predicted_bytes_per_s(found(ATTENTION, LINK, DISKS))
    # of 20 GB/s alone each direction keeps 15 beside the other
    kept = READ_BYTES_PER_S / (18e9 + 2 * 15e9 + 3e9)
    assert rates["attention"] == pytest.approx(18e9 * kept, rel=0.01)
    assert rates["link both ways"] == pytest.approx(15e9 * kept, rel=0.01)
    assert rates["disks"] == pytest.approx(3e9 * kept, rel=0.01)


def test_two_at_once_are_as_they_were_measured() -> None:
    rates = predicted_bytes_per_s(found(ATTENTION, DISKS, contention=True))
    assert rates["attention"] == pytest.approx(18e9 * 20 / 21)
    assert rates["disks"] == pytest.approx(3e9 * 20 / 21)


def test_what_fits_side_by_side_keeps_its_rates() -> None:
    slow = replace(ATTENTION, alone_bytes_per_s=10e9)
    rates = predicted_bytes_per_s(found(slow, DISKS))
    assert rates == pytest.approx({"attention": 10e9, "disks": 3e9})
    assert predicted_bytes_per_s(found()) == {}
